#include "bench/page.h"

#include <doctest/doctest.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <sstream>

#include "tests/bench/example_report.h"
#include "tests/support/contains.h"

namespace ddprun::bench {
namespace {

// The page as XML, which knows neither the doctype nor elements without an end.
boost::property_tree::ptree Parsed(std::string page) {
  const auto drop = [&page](const std::string& begin) {
    for (size_t at; (at = page.find(begin)) != std::string::npos;) {
      page.erase(at, page.find('>', at) + 1 - at);
    }
  };
  drop("<!DOCTYPE");
  drop("<meta");
  drop("<br");
  std::istringstream stream(page);
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(stream, tree);  // throws where an element is not closed
  return tree;
}

TEST_CASE("page: every element is closed, whatever was measured") {
  Report report = ExampleReport();
  CHECK_NOTHROW(Parsed(PageHtml(report)));
  report.sweep.clear();
  report.timelines.clear();
  CHECK_NOTHROW(Parsed(PageHtml(report)));
  std::erase_if(report.rows, [](const Row& row) { return row.ranks > 1; });
  CHECK_NOTHROW(Parsed(PageHtml(report)));
  report.rows.clear();
  CHECK_NOTHROW(Parsed(PageHtml(report)));
}

TEST_CASE("page: it asks for nothing outside of itself") {
  const std::string page = PageHtml(ExampleReport());
  for (const char* part : {"http:", "https:", "src=", "href=", "url(", "@import", "<script"}) {
    CAPTURE(part);
    CHECK(page != Contains(part));
  }
}

TEST_CASE("page: four plots, the table and what it all means") {
  const std::string page = PageHtml(ExampleReport());
  CHECK(CountOf(page, "<svg ") == 4);
  CHECK(CountOf(page, "<tr>") == 7);
  CHECK(page == Contains("<td>DataParallel</td><td>4</td><td>6400</td><td>2.00 of 4</td>"));
  CHECK(page == Contains("<td class=\"bad\">40.0 %</td>"));
  CHECK(page == Contains(Verdict(ExampleReport())));
  CHECK(page == Contains("C++ has no GIL"));
  CHECK(page == Contains("prefers-color-scheme: dark"));
  CHECK(page == Contains("Recommended for 4 ranks here: 4."));
}

TEST_CASE("page: a number that is none does not break a plot") {
  Report report = ExampleReport();
  for (Row& row : report.rows) row.samples_per_second = row.step_ms = 0;
  const std::string page = PageHtml(report);
  CHECK(page != Contains("nan"));
  CHECK(page != Contains("inf\""));
}

TEST_CASE("page: a bucket whose reduction outlasts backward is part hidden and part exposed") {
  const std::string page = PageHtml(ExampleReport());
  CHECK(page == Contains("<title>bucket 1, hidden: 1.00 ms, from 5.00 to 6.00</title>"));
  CHECK(page == Contains("<title>bucket 2, hidden: 0.50 ms, from 9.00 to 9.50</title>"));
  CHECK(page == Contains("<title>bucket 2, exposed: 0.50 ms, from 9.50 to 10.00</title>"));
  CHECK(page != Contains("bucket 1, exposed"));
}

TEST_CASE("page: it says which step is drawn, and how much of its communication is exposed") {
  const std::string page = PageHtml(ExampleReport());
  CHECK(page == Contains("length and exposed communication are nearest to the table's"));
  CHECK(page == Contains(">DataParallel, 4 replicas, step 17: 20.00 ms, 40.0 % exposed<"));
  CHECK(page ==
        Contains(">DistributedDataParallel, 4 ranks: rank 0, step 23: 11.00 ms, 4.5 % exposed<"));
}

TEST_CASE("page: ranks beyond the cores are marked, and only those") {
  Report report = ExampleReport();
  CHECK(PageHtml(report) != Contains("more ranks than cores"));
  report.machine.cores = 2;
  CHECK(PageHtml(report) == Contains("more ranks than cores (2)"));
}

TEST_CASE("page: numbers that are uncertain are told on it") {
  Report report = ExampleReport();
  CHECK(PageHtml(report) != Contains("Uncertain"));
  report.rows[4].halves_apart = 0.2;
  CHECK_NOTHROW(Parsed(PageHtml(report)));
  CHECK(PageHtml(report) == Contains(Uncertainty(report)));
}

TEST_CASE("page: losses that differ are told on it") {
  Report report = ExampleReport();
  CHECK(PageHtml(report) == Contains("losses are equal within 0.0001"));
  report.rows[1].final_loss = 3;
  CHECK(PageHtml(report) ==
        Contains("<strong>The losses differ:</strong> after 10 steps that of dp with 2 ranks"));
}

}  // namespace
}  // namespace ddprun::bench
