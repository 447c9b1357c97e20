// Runs a transcript: commands to one rendezvous machine, and what came of them.
//
//   # a comment; kept
//   policy min=2 max=2 max_restarts=1
//   join a
//   ----
//   a: waiting "1 of 2 nodes, waiting for 1 more" until=600000ms
//
// A block is commands, a line of four dashes, the expected lines, an empty line. Commands:
//   policy k=v...   min max max_restarts last_call join_timeout evict_after static (first command)
//   set NODE k=v... workers role rank addr from accepted port host endpoint nnodes=MIN:MAX
//   join NODE [new]     no worker lives there; `new`: over a new session although it has one
//   attach NODE         over a new session, with the workers of what it has adopted
//   stamp NODE E.R      what it believes to have adopted
//   beat|first_ok|ok|ack NODE   fail NODE [rank=][code=][signal=][age=]   leave NODE REASON
//   break NODE | silent NODE | tick D | stall D | explain | state
#ifndef DDPRUN_TESTS_TRANSCRIPTS_TRANSCRIPT_H_
#define DDPRUN_TESTS_TRANSCRIPTS_TRANSCRIPT_H_

#include <string>

namespace ddprun::rendezvous::testing {

// The transcript with every expectation replaced by what really came. A broken invariant or an
// unknown command is a line beginning with "!!".
std::string RunTranscript(const std::string& text);

}  // namespace ddprun::rendezvous::testing

#endif  // DDPRUN_TESTS_TRANSCRIPTS_TRANSCRIPT_H_
