#include "launcher/report/event_writer.h"

#include <utility>

#include "launcher/report/event_line.h"

namespace ddprun::launcher {

EventWriter::EventWriter(boost::asio::io_context& io, JobRecord::Part part, const std::string& path,
                         std::function<void(const std::string& text)> warn)
    : thread_(io),
      file_({.path = path}, thread_, std::move(warn)),
      log_(std::move(part), [this](const EventHead& head, const JobEvent& event) {
        file_.Append(EventLine(head, event));
      }) {}

}  // namespace ddprun::launcher
