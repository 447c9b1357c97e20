// Runs a transcript: commands to one rendezvous machine, and what came of them.
//
//   # a comment; kept
//   policy min=2 max=2 max_restarts=1
//   join a
//   ----
//   a: waiting "1 of 2 nodes, waiting for 1 more" until=600000ms
//
// A block is commands, a line of four dashes, the expected lines, an empty line. Commands:
//   policy k=v...   min max max_restarts max_same_failure max_node_losses max_preemptions backoff
//                   budget_period last_call join_timeout evict_after static scale_up (first
//                   command) record_limit, of its first coordinator health_timeout
//                   health_unknown=refuse max_node_failures=N:ROUNDS quarantine max_bad_nodes
//   set NODE k=v...     workers role rank addr from accepted port host endpoint nnodes=MIN:MAX run
//   program
//                       slurm_job slurm_step slurm_nodes max_restarts max_same_failure
//                       max_node_losses backoff scale_up health=healthy|bad|unknown line, and
//                       those of policy from health_timeout on
//   join NODE [new]     no worker lives there; `new`: over a new session although it has one
//   attach NODE         over a new session, with the workers of what it has adopted
//   stamp NODE E.R [other]   what it believes to have adopted; `other`: of another job
//   beat|ack NODE | ok NODE [read=to_scale_up|to_end]
//   health NODE healthy|bad|unknown [LINE]   of a later check
//   first_ok NODE [rank=][age=]
//   leave NODE REASON | preempt NODE REASON
//   fail NODE [rank=][code=][signal=][age=][left_peer=][step=][progress=][says=]
//   held NODE as OTHER [k=v...]   attaches with OTHER's place: node_rank first_rank world_size
//                       node_count round
//   restart [forget]    the coordinator is killed, another starts with its file or without
//   hang_disk           nothing is recorded from now on, until a restart
//   stop NODE [after_step|now]   the user's `ddprun stop` there
//   break NODE | close NODE (its end of the session) | silent NODE | talk NODE | tick D | stall D |
//   explain | state
#ifndef DDPRUN_TESTS_TRANSCRIPTS_TRANSCRIPT_H_
#define DDPRUN_TESTS_TRANSCRIPTS_TRANSCRIPT_H_

#include <string>

namespace ddprun::rendezvous::testing {

// The transcript with every expectation replaced by what really came. A broken invariant or an
// unknown command is a line beginning with "!!".
std::string RunTranscript(const std::string& text);

}  // namespace ddprun::rendezvous::testing

#endif  // DDPRUN_TESTS_TRANSCRIPTS_TRANSCRIPT_H_
