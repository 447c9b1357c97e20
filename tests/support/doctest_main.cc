// The main of every test program: runs the cases of each source file in a process of their own.
// Its environment: run_options.h. Its last line reads as doctest's own.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/file_process.h"
#include "tests/support/file_result.h"
#include "tests/support/junit.h"
#include "tests/support/run_options.h"
#include "tests/support/shared_results.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

// The cases of one source file that pass the filters: they stand side by side in doctest's order.
struct SourceFile {
  std::string name;
  int first = 0;  // doctest's number of the first of them
  std::vector<const doctest::TestCaseData*> cases;
};

// Those that a run with doctest's --list-test-cases finds.
struct Listing {
  std::vector<const doctest::TestCaseData*> cases;
  int first = 1;  // doctest's number of the first of them
  bool is_by_file = true;
};

// What the process that runs a file's cases writes down about them.
struct Recording {
  SharedResults* results;
  std::map<const doctest::TestCaseData*, size_t> indices;
  pid_t pid;
};

// doctest makes its listeners itself, so they find their task here.
Listing* listing = nullptr;
Recording* recording = nullptr;

class Listener : public doctest::IReporter {
 public:
  explicit Listener(const doctest::ContextOptions& options) : options_(options) {}

  void report_query(const doctest::QueryData& query) override {
    if (listing == nullptr) return;
    listing->cases.assign(query.data, query.data + query.num_data);
    listing->first = options_.first > 1 ? static_cast<int>(options_.first) : 1;
    listing->is_by_file = options_.order_by.compare("file", true) == 0;
  }
  void test_case_start(const doctest::TestCaseData& data) override {
    if (!is_recording()) return;
    index_ = recording->indices.at(&data);
    has_crashed_ = false;
    recording->results->Start(index_);
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (!is_recording() || has_crashed_) return;
    if (const auto reason = TakeSkipReason()) recording->results->Skip(index_, *reason);
    recording->results->End(index_, stats.testCaseSuccess, stats.seconds);
  }
  void test_case_exception(const doctest::TestCaseException& exception) override {
    if (!is_recording()) return;
    // doctest's handler of fatal signals goes on to call test_case_end.
    has_crashed_ = exception.is_crash;
    AddFailure(exception.is_crash ? "crashed: " : "threw: ", exception.error_string.c_str());
  }
  void log_assert(const doctest::AssertData& data) override {
    if (!is_recording() || !data.m_failed) return;
    std::ostringstream text;
    text << data.m_file << ':' << data.m_line << ": " << doctest::assertString(data.m_at) << "( "
         << data.m_expr << " )";
    if (data.m_threw) text << " threw " << data.m_exception.c_str();
    if (data.m_decomp.size() > 0) text << " with values " << data.m_decomp.c_str();
    AddFailure(text.str(), "");
  }
  void log_message(const doctest::MessageData& data) override {
    if (!is_recording() || (data.m_severity & doctest::assertType::is_warn) != 0) return;
    std::ostringstream text;
    text << data.m_file << ':' << data.m_line << ": " << data.m_string.c_str();
    AddFailure(text.str(), "");
  }
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  // False in what a case forks.
  static bool is_recording() { return recording != nullptr && recording->pid == getpid(); }

  void AddFailure(const std::string& what, const std::string& detail) const {
    std::ostringstream text;
    text << what << detail << '\n';
    const int scopes = get_num_active_contexts();
    for (int i = 0; i < scopes; ++i) {
      text << "  ";
      get_active_contexts()[i]->stringify(&text);
      text << '\n';
    }
    recording->results->AddFailure(index_, text.str());
  }

  const doctest::ContextOptions& options_;
  size_t index_ = 0;
  bool has_crashed_ = false;
};

REGISTER_LISTENER("ddprun", 0, Listener);

using Arguments = std::vector<const char*>;

Listing ListCases(Arguments arguments) {
  Listing found;
  arguments.push_back("--list-test-cases");
  doctest::Context context(static_cast<int>(arguments.size()), arguments.data());
  std::ostream nowhere(nullptr);
  context.setCout(&nowhere);
  listing = &found;
  context.run();
  listing = nullptr;
  return found;
}

std::vector<SourceFile> GroupByFile(const Listing& found) {
  std::vector<SourceFile> files;
  for (size_t i = 0; i < found.cases.size(); ++i) {
    const std::string file = found.cases[i]->m_file.c_str();
    if (files.empty() || files.back().name != file) {
      files.push_back({.name = file, .first = found.first + static_cast<int>(i)});
    }
    files.back().cases.push_back(found.cases[i]);
  }
  return files;
}

// The child's side.
int RunCases(const Arguments& arguments, const SourceFile& file, SharedResults* results) {
  ForgetRunOptions();
  Recording own{.results = results, .pid = getpid()};
  for (size_t i = 0; i < file.cases.size(); ++i) own.indices[file.cases[i]] = i;
  doctest::Context context(static_cast<int>(arguments.size()), arguments.data());
  context.setOption("first", file.first);
  context.setOption("last", file.first + static_cast<int>(file.cases.size()) - 1);
  // doctest's own summary appears only where something failed.
  context.setOption("minimal", true);
  recording = &own;
  const int result = context.run();
  recording = nullptr;
  // A process that a case has forked, and that came back from it, is none of ours.
  if (own.pid == getpid()) results->Finish(result);
  return result;
}

std::string BadEnd(const ProcessEnd& end, const SharedResults& results, double limit_s) {
  if (!end.start_error.empty()) return "was not started: " + end.start_error;
  if (end.stop_signal != 0) {
    return "was killed, as this program got " + SignalName(end.stop_signal) + ",";
  }
  if (end.has_reached_limit) {
    char text[80];
    std::snprintf(text, sizeof text, "was killed at the limit of %g s", limit_s);
    return text;
  }
  const bool has_exited = WIFEXITED(end.wait_status);
  if (has_exited && results.exit_code() == WEXITSTATUS(end.wait_status)) return "";
  const std::string how = DescribeWaitStatus(end.wait_status);
  return has_exited && results.exit_code() ? how + " after the last case" : how;
}

// What a file's process has written down, joined with the cases' names.
FileResult ReadResult(const SourceFile& file, const SharedResults* results) {
  FileResult result{.file = file.name};
  for (size_t i = 0; i < file.cases.size(); ++i) {
    result.cases.push_back(results != nullptr ? results->Read(i) : CaseResult{});
    result.cases.back().name = file.cases[i]->m_name;
  }
  return result;
}

FileResult RunFile(const Arguments& arguments, const SourceFile& file, const RunOptions& options,
                   const HeldSignals& signals, int* stop_signal) {
  SharedResults results(file.cases.size());
  const ProcessEnd end =
      RunInProcess(signals, options.file_limit, options.is_streaming, "---- " + file.name + "\n",
                   [&] { return RunCases(arguments, file, &results); });
  FileResult result = ReadResult(file, &results);
  result.seconds = end.time.count();
  result.bad_end = BadEnd(end, results, options.file_limit.count());
  *stop_signal = end.stop_signal;
  return result;
}

// True if every case passed. The last line has the form of doctest's.
bool PrintSummary(const std::vector<FileResult>& results, bool is_streaming) {
  CaseCounts sum;
  // What was streamed need not have ended its last line.
  if (is_streaming) std::printf("\n");
  for (const FileResult& result : results) {
    const CaseCounts counts = CountCases(result);
    if (counts.failed > 0 || result.seconds > 1) std::printf("%s\n", FileLine(result).c_str());
    sum.passed += counts.passed;
    sum.failed += counts.failed;
  }
  std::printf("[doctest] test cases: %3d | %3d passed | %d failed | 0 skipped\n",
              sum.passed + sum.failed, sum.passed, sum.failed);
  std::fflush(stdout);
  return sum.failed == 0;
}

// All of it or nothing: who reads it may come at any time.
bool WriteXml(const std::string& path, const std::vector<FileResult>& results) {
  const std::string draft = path + "." + std::to_string(getpid());
  std::ofstream file(draft, std::ios::binary);
  file << JUnitXml(results);
  file.close();
  if (file.good() && rename(draft.c_str(), path.c_str()) == 0) return true;
  std::fprintf(stderr, "write \"%s\": %s\n", path.c_str(), std::strerror(errno));
  unlink(draft.c_str());
  return false;
}

int Fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  return EXIT_FAILURE;
}

int RunFiles(const Arguments& arguments, const std::vector<SourceFile>& files,
             const RunOptions& options) {
  const HeldSignals signals;
  std::vector<FileResult> results;
  int stop_signal = 0;
  for (size_t i = options.shard; i < files.size(); i += options.shards) {
    if (stop_signal == 0) {
      results.push_back(RunFile(arguments, files[i], options, signals, &stop_signal));
    } else {
      results.push_back(ReadResult(files[i], nullptr));
    }
  }
  bool is_good = PrintSummary(results, options.is_streaming);
  if (!options.xml_file.empty() && !WriteXml(options.xml_file, results)) is_good = false;
  if (stop_signal != 0) return 128 + stop_signal;
  return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int Main(Arguments arguments) {
  doctest::Context asked(static_cast<int>(arguments.size()), arguments.data());
  if (asked.shouldExit()) return asked.run();

  RunOptions options;
  std::string error;
  const auto environment = [](const char* name) -> std::string {
    const char* const value = getenv(name);
    return value != nullptr ? value : "";
  };
  if (!ReadRunOptions(environment, &options, &error)) return Fail(error);
  options.is_streaming |= isatty(STDOUT_FILENO) == 1;
  if (!options.shard_status_file.empty()) std::ofstream(options.shard_status_file).flush();
  const std::string filter = "--test-case=" + options.filter;
  if (!options.filter.empty()) arguments.push_back(filter.c_str());

  const Listing found = ListCases(arguments);
  if (!found.is_by_file) return Fail("--order-by: the cases run by file, in no other order");
  const std::vector<SourceFile> files = GroupByFile(found);
  if (files.empty()) return Fail("no test case matches: none is run");
  return RunFiles(arguments, files, options);
}

}  // namespace
}  // namespace ddprun::testing

int main(int argc, char** argv) { return ddprun::testing::Main({argv, argv + argc}); }
