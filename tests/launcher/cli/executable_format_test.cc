#include "launcher/cli/program.h"

#include <doctest/doctest.h>
#include <elf.h>
#include <sys/stat.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

// Executable.
std::string WriteProgram(const testing::TempDir& dir, const std::string& name,
                         const std::string& content) {
  return testing::WriteFile(dir.File(name), content, 0755);
}

// This test's own program, which the kernel has just run.
std::string OwnProgram() { return testing::ReadFile("/proc/self/exe"); }

std::string WithHeader(const std::string& program, void (*change)(Elf64_Ehdr&)) {
  std::string out = program;
  Elf64_Ehdr header;
  std::memcpy(&header, out.data(), sizeof(header));
  change(header);
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

TEST_CASE("executable format: what the kernel runs has no problem") {
  CHECK(InspectExecutable("/proc/self/exe").problem == "");
  CHECK_FALSE(InspectExecutable("/proc/self/exe").needs_shell);
  CHECK(InspectExecutable("/bin/sh").problem == "");
  CHECK(InspectExecutable("/no/such/file").problem == "");
  CHECK(InspectExecutable("/").problem == "");
}

TEST_CASE("executable format: an empty file runs nothing, which is seldom meant") {
  const testing::TempDir dir;
  CHECK(InspectExecutable(WriteProgram(dir, "run", "")).problem == "is an empty file");
}

TEST_CASE("executable format: a text without '#!' is the shell's") {
  const testing::TempDir dir;
  for (const std::string text : {"echo hello\n", "#", "# comment\n", "#!\n", "#! \t\n"}) {
    CAPTURE(text);
    const ExecutableFormat format = InspectExecutable(WriteProgram(dir, "run", text));
    CHECK(format.problem == "");
    CHECK(format.needs_shell == (text.substr(0, 2) != "#!"));
  }
}

TEST_CASE("executable format: a script's interpreter must be there and executable") {
  const testing::TempDir dir;
  const std::string plain = testing::WriteFile(dir.File("plain"), "x", 0644);
  struct Row {
    std::string line;
    std::string problem;
  };
  const std::vector<Row> rows = {
      {"#!/bin/sh", ""},
      {"#!/bin/sh\n", ""},
      {"#!  /bin/sh\t -e  \n", ""},
      {"#!/no/such/python3\n", "interpreter '/no/such/python3', which does not exist"},
      {"#! /no/such/python3 -u\n", "interpreter '/no/such/python3', which does not exist"},
      {"#!/bin/sh\r\n", "interpreter '/bin/sh\\r', which does not exist (the file has DOS"},
      {"#!" + plain + "\n", "which is not executable"},
      {"#!/tmp\n", "interpreter '/tmp', which is a directory"},
      {"#!/" + std::string(5000, 'x') + "\n", "which does not exist"},
  };
  for (const Row& row : rows) {
    const ExecutableFormat format = InspectExecutable(WriteProgram(dir, "script", row.line));
    CAPTURE(row.line);
    CAPTURE(format.problem);
    if (row.problem.empty()) {
      CHECK(format.problem == "");
    } else {
      CHECK(format.problem == Contains(row.problem));
    }
    CHECK(format.problem.size() < 400);
    CHECK(format.env_command == "");
  }
}

TEST_CASE("executable format: the command behind env is told") {
  const testing::TempDir dir;
  struct Row {
    std::string line;
    std::string command;
  };
  const std::vector<Row> rows = {{"#!/usr/bin/env python3\n", "python3"},
                                 {"#! /usr/bin/env  python3 \n", "python3"},
                                 {"#!/usr/bin/env python3\r\n", "python3\r"},
                                 {"#!/usr/bin/env -S python3 -u\n", ""},
                                 {"#!/usr/bin/env A=b python3\n", ""},
                                 {"#!/usr/bin/env\n", ""},
                                 {"#!/bin/sh python3\n", ""}};
  for (const Row& row : rows) {
    CAPTURE(row.line);
    CHECK(InspectExecutable(WriteProgram(dir, "script", row.line)).env_command == row.command);
  }
}

TEST_CASE("executable format: an ELF file that cannot run here is told why") {
  const testing::TempDir dir;
  const std::string own = OwnProgram();
  const std::string object = WithHeader(own, [](Elf64_Ehdr& header) { header.e_type = ET_REL; });
  CHECK(InspectExecutable(WriteProgram(dir, "o", object)).problem ==
        "is an object file, not a program");
  CHECK(InspectExecutable(WriteProgram(dir, "cut", own.substr(0, 20))).problem ==
        Contains("cut short"));
  std::string elsewhere = own;
  const size_t loader = elsewhere.find("/ld-linux");
  if (loader != std::string::npos) {
    elsewhere.replace(loader, 9, "/ld-other");
    const std::string problem = InspectExecutable(WriteProgram(dir, "musl", elsewhere)).problem;
    CAPTURE(problem);
    CHECK(problem.find("needs the loader '/lib") == 0);
    CHECK(problem == Contains("/ld-other"));
  }
}

TEST_CASE("executable format: headers that lie do no harm") {
  const testing::TempDir dir;
  const std::string own = OwnProgram();
  const std::vector<void (*)(Elf64_Ehdr&)> lies = {
      [](Elf64_Ehdr& header) { header.e_phoff = ~0ULL; },
      [](Elf64_Ehdr& header) { header.e_phoff = 1ULL << 62; },
      [](Elf64_Ehdr& header) { header.e_phnum = 0xffff; },
      [](Elf64_Ehdr& header) { header.e_phentsize = 0; },
      [](Elf64_Ehdr& header) { header.e_phoff = 1; },
  };
  for (const auto lie : lies) {
    CHECK(InspectExecutable(WriteProgram(dir, "lie", WithHeader(own, lie))).problem == "");
  }
}

TEST_CASE("executable format: another machine's program and other binaries are named") {
  if (HasFurtherFormats()) {
    return testing::SkipTest("this kernel runs further formats (binfmt_misc)");
  }
  const testing::TempDir dir;
  const std::string foreign =
      WithHeader(OwnProgram(), [](Elf64_Ehdr& header) { header.e_machine = EM_RISCV; });
  CHECK(InspectExecutable(WriteProgram(dir, "foreign", foreign))
            .problem.find("is a program for RISC-V; this machine is ") == 0);
  CHECK(InspectExecutable(WriteProgram(dir, "exe", std::string("MZ\x90\0\x03", 5))).problem ==
        "is neither a program for this machine nor a script");
}

}  // namespace
}  // namespace ddprun::launcher
