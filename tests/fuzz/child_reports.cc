// What our own children tell over pipes; libraries in them, and programs, may write there too.
#include <cstdint>
#include <string>

#include "launcher/check/check_report.h"
#include "launcher/doctor/doctor_facts.h"
#include "launcher/dump/shown_environment.h"
#include "tests/fuzz/promise.h"
#include "worker_runtime/spawn/rank_news.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::TextOf(data, size);
  const std::string report = ReportText(ParseReport(text));
  Promise(fuzz::IsPlain(report, true), "a report is plain lines", report);
  Promise(ReportText(ParseReport(report)) == report, "a report is read as it was written", report);

  for (const Gpu& gpu : ParseProbeLines(text).gpus) {
    const GpuReport again = ParseProbeLines(ProbeLine("gpu", EncodeGpu(gpu)));
    Promise(again.gpus.size() == 1 && again.gpus[0] == gpu, "a GPU is read as it was written",
            EncodeGpu(gpu));
  }

  const ddp::internal::RankNews news = ddp::internal::ParseRankNews(text);
  Promise(fuzz::IsPlain(news.exception.value_or(""), false), "an exception is one plain line");
  if (const auto mark = ddp::internal::ParseSpawnMark(text)) {
    Promise(ddp::internal::ParseSpawnMark(FormatSpawnMark(*mark)) == mark,
            "a mark is read as it was written");
  }

  // Of a process that may have written over them.
  const std::string environment = ShownEnvironment({text.data(), text.size()});
  Promise(fuzz::IsPlain(environment, true), "an environment is plain lines", environment);
  const std::string command = ShownCommand({text.data(), text.size()});
  Promise(fuzz::IsPlain(command, false), "a command is one plain line", command);
  return 0;
}

}  // namespace ddprun::launcher
