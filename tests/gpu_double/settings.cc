#include "tests/gpu_double/settings.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace ddprun::gpu_double {
namespace {

[[noreturn]] void Refuse(const std::string& name, const std::string& value) {
  std::fprintf(stderr, "gpu double: %s: cannot read '%s'\n", name.c_str(), value.c_str());
  std::abort();
}

long ToNumber(const std::string& name, const std::string& value) {
  char* end = nullptr;
  const long number = std::strtol(value.c_str(), &end, 10);
  if (value.empty() || *end != '\0') Refuse(name, value);
  return number;
}

// One fault without its "@rank".
void Apply(Faults& faults, const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const bool has_value = equals != std::string::npos;
  const auto value = [&] {
    if (!has_value) Refuse("DDPRUN_DOUBLE_FAULT", text);
    return ToNumber("DDPRUN_DOUBLE_FAULT", text.substr(equals + 1));
  };
  if (name == "init_hangs") {
    faults.init_hangs = true;
  } else if (name == "never_joins") {
    faults.never_joins = true;
  } else if (name == "abort_hangs") {
    faults.abort_hangs = true;
  } else if (name == "finalize_hangs") {
    faults.finalize_hangs = true;
  } else if (name == "no_openssl") {
    faults.no_openssl = true;
  } else if (name == "refuses_key") {
    faults.refuses_key = true;
  } else if (name == "no_memalloc") {
    faults.no_memalloc = true;
  } else if (name == "eager_free") {
    faults.eager_free = true;
  } else if (name == "blind") {
    faults.is_blind = true;
  } else if (name == "lenient") {
    faults.is_lenient = true;
  } else if (name == "rounded_average") {
    faults.rounds_average = true;
  } else if (name == "remote_error" && !has_value) {
    faults.notices_dead_peers = true;
  } else if (name == "remote_error") {
    faults.remote_error = value();
  } else if (name == "async_error") {
    faults.async_error = value();
  } else if (name == "hang") {
    faults.hang = value();
  } else if (name == "stays") {
    faults.stays = value();
  } else if (name == "call_hangs") {
    faults.call_hangs = value();
  } else if (name == "cuinit") {
    faults.cuinit = value();
  } else if (name == "slow") {
    faults.slow_ms = value();
  } else {
    Refuse("DDPRUN_DOUBLE_FAULT", text);
  }
}

}  // namespace

std::string TextSetting(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

long NumberSetting(const char* name, long otherwise) {
  const std::string value = TextSetting(name, "");
  return value.empty() ? otherwise : ToNumber(name, value);
}

Faults Faults::Of(int rank) {
  Faults faults;
  std::stringstream all(TextSetting("DDPRUN_DOUBLE_FAULT", ""));
  std::string one;
  while (std::getline(all, one, ',')) {
    const size_t at = one.find('@');
    const bool is_meant =
        at == std::string::npos || ToNumber("DDPRUN_DOUBLE_FAULT", one.substr(at + 1)) == rank;
    Faults unused;
    // Also a fault of another rank must be spelt right.
    Apply(is_meant ? faults : unused, one.substr(0, at));
  }
  return faults;
}

}  // namespace ddprun::gpu_double
