#include "launcher/control/http_server.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/launcher/control/http_testing.h"
#include "tests/support/contains.h"
#include "tests/support/scarce_descriptors.h"

namespace ddprun::launcher {
namespace {

using testing::Await;
using testing::RawClient;
using testing::TestServer;

// Says what it was asked; "/stream" stays open.
void Echo(const HttpRequest& request, const HttpServer::Answer& answer) {
  if (request.path == "/stream") return answer({.body = "hello|", .channel = "all"});
  if (request.path == "/big") return answer({.body = std::string(8 << 20, 'x')});
  std::string body = request.method + " " + request.path + (request.is_local ? " local" : "");
  for (const auto& [name, value] : request.query) body += " " + name + "=" + value;
  answer({.body = body + ";"});
}

std::string Get(const std::string& path, const std::string& more = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + more + "\r\n";
}

// The status of the first answer to `request` over the port: "200".
std::string StatusOf(const TestServer& server, const std::string& request) {
  RawClient client(server.port());
  client.Send(request);
  const std::string line = client.ReadUntil("\r\n");
  return line.size() < 12 ? "none: " + line : line.substr(9, 3);
}

TEST_CASE("http server: requests follow each other over one connection, also all at once") {
  TestServer server(Echo);
  RawClient client(server.port());
  client.Send(Get("/one?a=1"));
  const std::string first = client.Take("GET /one a=1;");
  CHECK(first == Contains("HTTP/1.1 200 OK\r\n"));
  CHECK(first == Contains("Content-Length: 13\r\n"));
  CHECK(first == Contains("Cache-Control: no-store\r\n"));
  CHECK(first == Contains("X-Content-Type-Options: nosniff\r\n"));
  CHECK(first == Contains("frame-ancestors 'none'"));
  client.Send(Get("/two") + Get("/three") + Get("/four", "Connection: close\r\n"));
  client.Take("GET /two;");
  client.Take("GET /three;");
  CHECK(client.ReadAll() == Contains("GET /four;"));
}

TEST_CASE("http server: a request may come byte by byte") {
  TestServer server(Echo);
  RawClient client(server.port());
  for (const char c : Get("/slow")) client.Send(std::string(1, c));
  CHECK(client.ReadUntil("/slow;") == Contains("GET /slow;"));
}

TEST_CASE("http server: HEAD is answered as GET, without the body") {
  TestServer server(Echo);
  RawClient client(server.port());
  client.Send("HEAD /one HTTP/1.1\r\nHost: localhost\r\n\r\n" + Get("/two"));
  const std::string text = client.ReadUntil("GET /two;");
  CHECK(text == Contains("Content-Length: 9\r\n"));
  CHECK(text != Contains("GET /one"));
  // Of a stream, too; and what is no request after it gets its reason.
  client.Take("GET /two;");
  client.Send("HEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  client.Take("\r\n\r\n");
  client.Send("what\r\n\r\n");
  CHECK(client.ReadAll() == Contains("not an HTTP request\n"));
}

TEST_CASE("http server: HTTP/1.0 is answered, and closed") {
  TestServer server(Echo);
  RawClient client(server.port());
  client.Send("GET /old HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
  CHECK(client.ReadAll() == Contains("GET /old;"));
}

TEST_CASE("http server: a port is for reading, by names that are known, for no foreign page") {
  TestServer server(Echo);
  CHECK(StatusOf(server, "POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") == "405");
  CHECK(StatusOf(server, "DELETE / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") == "405");
  CHECK(StatusOf(server, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n") == "421");
  CHECK(StatusOf(server, "GET / HTTP/1.1\r\n\r\n") == "421");
  CHECK(StatusOf(server, "GET / HTTP/1.1\r\nHost: node1:99\r\n\r\n") == "200");
  // Prometheus comes by a service's name.
  CHECK(StatusOf(server, "GET /metrics HTTP/1.1\r\nHost: svc.example\r\n\r\n") == "200");
  CHECK(StatusOf(server, Get("/", "Origin: http://evil.example\r\n")) == "403");
  CHECK(StatusOf(server, Get("/", "Origin: null\r\n")) == "403");
  CHECK(StatusOf(server, Get("/", "Origin: http://127.0.0.1\r\n")) == "200");
  CHECK(StatusOf(server, "GET /metrics HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n") == "403");
}

TEST_CASE("http server: the control socket takes any method, Host and origin") {
  TestServer server(Echo);
  RawClient client(server.socket_path());
  client.Send("POST /stop?after_step HTTP/1.1\r\nHost: ddprun\r\nContent-Length: 0\r\n\r\n");
  client.Take("POST /stop local after_step=;");
  client.Send("POST /a HTTP/1.1\r\nOrigin: x\r\nContent-Length: 3\r\n\r\nabc");
  client.Take("POST /a local;");
  client.Send("POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
  client.Take("POST /b local;");
  client.Send("POST /c HTTP/1.1\r\nConnection: close\r\n\r\n");  // no length: no body
  CHECK(client.ReadAll() == Contains("POST /c local;"));
}

TEST_CASE("http server: what is no request, no path, or too large is refused and closed") {
  TestServer server(Echo);
  CHECK(StatusOf(server, "what is this\r\n\r\n") == "400");
  CHECK(StatusOf(server, std::string(200, '\0')) == "400");
  CHECK(StatusOf(server, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls\r\n\r\n") == "400");
  CHECK(StatusOf(server, "GET nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") == "400");
  CHECK(StatusOf(server, Get("/%zz")) == "400");
  CHECK(StatusOf(server, "GET / HTTP/3.0\r\nHost: 127.0.0.1\r\n\r\n") == "400");
  CHECK(StatusOf(server, Get("/", "X: " + std::string(9000, 'x') + "\r\n")) == "413");
  CHECK(StatusOf(server, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 70000\r\n\r\n") ==
        "413");
  CHECK(StatusOf(server,
                 "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n") ==
        "400");
  RawClient client(server.port());
  client.Send("GET / HT");
  client.HalfClose();
  CHECK(client.ReadAll() == "");
}

TEST_CASE("http server: an answer may come later, and its connection be gone by then") {
  std::vector<HttpServer::Answer> waiting;  // of the server's thread
  TestServer server([&waiting](const HttpRequest&, HttpServer::Answer answer) {
    waiting.push_back(std::move(answer));
  });
  const auto count = [&] {
    size_t size = 0;
    server.Do([&](HttpServer&) { size = waiting.size(); });
    return size;
  };
  RawClient stays(server.port());
  stays.Send(Get("/a"));
  REQUIRE(Await([&] { return count() == 1; }));
  {
    RawClient goes(server.port());
    goes.Send(Get("/b"));
    REQUIRE(Await([&] { return count() == 2; }));
  }
  server.Do([&](HttpServer&) {
    for (const HttpServer::Answer& answer : waiting) answer({.status = 503, .body = "later;"});
    waiting.clear();
  });
  CHECK(stays.ReadUntil("later;") == Contains("HTTP/1.1 503 Service Unavailable\r\n"));
  // Nor does one matter that comes after the server has closed.
  stays.Send(Get("/c"));
  REQUIRE(Await([&] { return count() == 1; }));
  server.Do([&](HttpServer& open) { open.Close(); });
  server.Do([&](HttpServer&) { std::exchange(waiting, {})[0]({.body = "too late"}); });
  CHECK(stays.ReadAll() != Contains("too late"));
}

TEST_CASE("http server: a stream gets its body, then what is published, until the reader goes") {
  TestServer server(Echo);
  server.Publish("before;");
  RawClient first(server.port()), second(server.socket_path());
  first.Send(Get("/stream"));
  second.Send(Get("/stream"));
  CHECK(first.Take("hello|") == Contains("Connection: close\r\n"));
  second.Take("hello|");
  REQUIRE(server.AwaitStreams(2));
  server.Publish("event 1;");
  CHECK(first.Take(";") == "event 1;");
  CHECK(second.Take(";") == "event 1;");
  first.Send("nobody reads this");
  server.Publish("event 2;");
  CHECK(first.Take(";") == "event 2;");
  second.Close();
  CHECK(server.AwaitStreams(1));
  first.HalfClose();
  CHECK(server.AwaitStreams(0));
  CHECK(first.ReadAll() == "");
}

TEST_CASE("http server: what is published while a stream's body is written is not lost") {
  std::optional<HttpServer::Answer> waiting;  // of the server's thread
  TestServer server(
      [&waiting](const HttpRequest&, HttpServer::Answer answer) { waiting = std::move(answer); });
  RawClient client(server.port());
  client.Send(Get("/"));
  REQUIRE(Await([&] {
    bool is_there = false;
    server.Do([&](HttpServer&) { is_there = waiting.has_value(); });
    return is_there;
  }));
  server.Do([&](HttpServer& open) {
    (*std::exchange(waiting, {}))({.body = "hello|", .channel = "all"});
    open.Publish("all", std::make_shared<const std::string>("at once;"));
  });
  CHECK(client.ReadUntil("at once;") == Contains("hello|at once;"));
}

TEST_CASE("http server: a reader that is slow gets the newest only") {
  TestServer server(Echo);
  RawClient client(server.socket_path());
  client.Send(Get("/stream"));
  client.Take("hello|");
  REQUIRE(server.AwaitStreams(1));
  // More than all buffers on the way hold, so that the first of these is under way for long.
  for (int i = 1; i <= 9; ++i) {
    server.Publish("begin" + std::to_string(i) + std::string(4 << 20, '.') + ";");
  }
  CHECK(client.Take(";").substr(0, 6) == "begin1");
  CHECK(client.Take(";").substr(0, 6) == "begin9");
  server.Publish("last;");
  CHECK(client.Take(";") == "last;");
}

TEST_CASE("http server: a large answer arrives whole") {
  TestServer server(Echo);
  RawClient client(server.port());
  client.Send(Get("/big", "Connection: close\r\n"));
  const std::string all = client.ReadAll();
  CHECK(all.size() - all.find("\r\n\r\n") - 4 == size_t{8} << 20);
}

using Clients = std::vector<std::unique_ptr<RawClient>>;

// As many as one door takes, each asking for `path` and hearing `answer`.
void AddClients(Clients& clients, const auto& door, const std::string& path,
                const std::string& answer) {
  while (clients.size() < HttpServer::kMaxConnections) {
    clients.push_back(std::make_unique<RawClient>(door));
    clients.back()->Send(Get(path));
    REQUIRE(clients.back()->Take(answer) == Contains(answer));
  }
}

TEST_CASE(
    "http server: 64 connections of the control socket; more are closed until there is room") {
  TestServer server(Echo);
  Clients clients;
  AddClients(clients, server.socket_path(), "/in", "/in local;");
  CHECK(RawClient(server.socket_path()).ReadAll() == "");
  // The port has its own.
  CHECK(StatusOf(server, Get("/")) == "200");
  clients.pop_back();
  CHECK(Await([&] {
    RawClient client(server.socket_path());
    return client.Send(Get("/", "Connection: close\r\n")) && !client.ReadAll().empty();
  }));
}

TEST_CASE("http server: who holds all places of a port makes room for others") {
  TestServer server(Echo);
  RawClient other(server.port(), 2);  // the oldest, of an address that has only this one
  other.Send(Get("/other"));
  other.Take("/other;");
  Clients clients;
  clients.push_back(nullptr);  // for the other one
  AddClients(clients, server.port(), "/stream", "hello|");
  RawClient third(server.port(), 3);
  third.Send(Get("/third"));
  CHECK(third.Take("/third;") == Contains("GET /third;"));
  CHECK(clients[1]->ReadAll() == "");  // closed
  CHECK(server.AwaitStreams(62));
  // They come again, and it is their own that go.
  Clients more;
  AddClients(more, server.port(), "/stream", "hello|");
  CHECK(server.AwaitStreams(62));
  for (RawClient* kept : {&other, &third}) {
    kept->Send(Get("/kept"));
    CHECK(kept->Take("/kept;") == Contains("GET /kept;"));
  }
}

TEST_CASE("http server: connections that wait for a request make room before streams") {
  TestServer server(Echo);
  RawClient stream(server.port());
  stream.Send(Get("/stream"));
  stream.Take("hello|");
  Clients clients;
  clients.push_back(nullptr);  // for the stream
  AddClients(clients, server.port(), "/in", "/in;");
  CHECK(StatusOf(server, Get("/")) == "200");
  CHECK(clients[1]->ReadAll() == "");  // closed
  server.Publish("news|");
  CHECK(stream.Take("news|") == Contains("news|"));
}

TEST_CASE("http server: who does not read a reply makes room, behind who waits for a request") {
  std::vector<HttpServer::Answer> waiting;  // of the server's thread
  TestServer server([&waiting](const HttpRequest& request, const HttpServer::Answer& answer) {
    if (request.path != "/wait") return Echo(request, answer);
    waiting.push_back(answer);
  });
  Clients clients;  // two that do not read, and all others wait for an answer
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->Send(Get("/big"));
    REQUIRE(clients.back()->ReadUntil("HTTP/1.1 200") == Contains("HTTP/1.1 200"));
  }
  while (clients.size() < HttpServer::kMaxConnections) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->Send(Get("/wait"));
  }
  REQUIRE(Await([&] {
    size_t seen = 0;
    server.Do([&](HttpServer&) { seen = waiting.size(); });
    return seen == HttpServer::kMaxConnections - 2;
  }));
  RawClient idle(server.port());
  idle.Send(Get("/idle"));
  CHECK(idle.Take("/idle;") == Contains("GET /idle;"));
  CHECK(clients[0]->ReadAll().size() < size_t{8} << 20);  // the older one was closed
  RawClient other(server.port(), 2);
  other.Send(Get("/other"));
  CHECK(other.Take("/other;") == Contains("GET /other;"));
  CHECK(idle.ReadAll() == "");
  server.Do([&](HttpServer&) { waiting.clear(); });
}

TEST_CASE("http server: who waits for an answer makes no room") {
  std::vector<HttpServer::Answer> waiting;  // of the server's thread
  TestServer server([&waiting](const HttpRequest&, HttpServer::Answer answer) {
    waiting.push_back(std::move(answer));
  });
  Clients clients;
  while (clients.size() < HttpServer::kMaxConnections) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->Send(Get("/wait"));
  }
  const auto count = [&] {
    size_t seen = 0;
    server.Do([&](HttpServer&) { seen = waiting.size(); });
    return seen;
  };
  REQUIRE(Await([&] { return count() == HttpServer::kMaxConnections; }));
  CHECK(RawClient(server.port(), 2).ReadAll() == "");
  server.Do([&](HttpServer&) {
    for (const HttpServer::Answer& answer : waiting) answer({.body = "at last;"});
    waiting.clear();
  });
  for (const auto& client : clients) CHECK(client->Take("at last;") == Contains("at last;"));
}

TEST_CASE("http server: it closes with connections in every state, and can be asked nothing then") {
  auto server = std::make_unique<TestServer>(Echo);
  RawClient idle(server->port()), half(server->port()), stream(server->port()),
      big(server->socket_path());
  half.Send("GET / HTT");
  stream.Send(Get("/stream"));
  stream.Take("hello|");
  big.Send(Get("/big"));
  big.ReadUntil("HTTP/1.1 200");
  REQUIRE(server->AwaitStreams(1));
  server->Do([](HttpServer& open) { open.Close(); });
  for (RawClient* client : {&idle, &half, &stream}) CHECK(client->ReadAll() == "");
  CHECK(big.ReadAll().size() < size_t{8} << 20);
  server->Publish("nobody");
  server.reset();
}

TEST_CASE("http server: without a descriptor to accept with, it serves as soon as there is one") {
  TestServer server(Echo);
  std::optional<RawClient> client;
  {
    const ddprun::testing::ScarceDescriptors scarce;
    client.emplace(server.port());
    client->Send(Get("/later"));
  }
  CHECK(client->ReadUntil("/later;") == Contains("GET /later;"));
  // Nor does it matter when it closes while it waits for one.
  const ddprun::testing::ScarceDescriptors scarce;
  const RawClient another(server.port());
  server.Do([](HttpServer& open) { open.Close(); });
}

}  // namespace
}  // namespace ddprun::launcher
