// What others wrote, made fit for a line on a terminal. [pure]
#ifndef DDPRUN_RENDEZVOUS_BASE_PLAIN_TEXT_H_
#define DDPRUN_RENDEZVOUS_BASE_PLAIN_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

// `text` on one line and harmless on a terminal: control characters (C1 included) and bytes that
// are not UTF-8 become \n, \r, \x1b ...; tabs and everything printable stay. What was escaped once
// stays as it is.
std::string EscapeControl(std::string_view text);

// The same with U+FFFD for each of them: for readers that know no such escapes.
std::string ReplaceControl(std::string_view text);

// Where a text may be cut at or before `at` without parting a UTF-8 character.
size_t CharacterStart(std::string_view text, size_t at);

// "HOST:PORT", with brackets around an IPv6 literal.
std::string EndpointText(const std::string& host, uint16_t port);

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_PLAIN_TEXT_H_
