// Whether a token may be guessed. [pure]
//
// Who records one connection of a job can try tokens against it for as long as it likes. 128 bits
// that a random generator drew resist that, and no text that a person thought of does.
//
// The estimate takes each character for random among those of its kinds: digits, letters of one
// case, letters of both, or all that can be printed. Three things count less:
//
//   a word, which is four or more letters of one case in a row: 13 bits, as in a list of 8,000
//   six or more characters of which each is equal or next to the one before: 8 bits
//   what repeats a shorter block: nothing
//
// Digits alone and hexadecimal digits have no words. Hyphens and underscores count nothing.
#ifndef DDPRUN_RENDEZVOUS_TLS_TOKEN_STRENGTH_H_
#define DDPRUN_RENDEZVOUS_TLS_TOKEN_STRENGTH_H_

#include <string_view>

namespace ddprun::rendezvous {

inline constexpr double kEnoughTokenBits = 128;

double EstimateTokenBits(std::string_view token);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_TLS_TOKEN_STRENGTH_H_
