#include "emu/ring/control_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "emu/ring/unix_socket.h"

namespace emu {
namespace {

class ControlServerTest : public testing::Test {
 protected:
  ControlServerTest() {
    auto opened = ControlServer::open(path_, [this](const std::string& request) {
      ++asked_;
      return std::string(request == "long" ? kLong : 5, 'x');
    });
    EXPECT_TRUE(opened);
    server_ = std::move(*opened);
  }

  UniqueFd client() {
    auto socket = connect_unix(path_, true);
    EXPECT_TRUE(socket);
    server_->service();
    return std::move(*socket);
  }
  static void ask(const UniqueFd& socket, const std::string& request) {
    const auto sent = send_message(socket.get(), std::as_bytes(std::span(request)));
    EXPECT_TRUE(sent && *sent);
  }
  // What the server has for it, until a line is whole or nothing more comes.
  std::string line(const UniqueFd& socket) {
    std::string text;
    std::vector<std::byte> buffer(kMessageBytesMax);
    while (!text.ends_with('\n')) {
      server_->service();
      auto message = receive_message(socket.get(), buffer);
      if (!message || message->state != ReceivedMessage::State::message) break;
      text.append(reinterpret_cast<const char*>(buffer.data()), message->bytes);
    }
    return text;
  }

  static constexpr std::size_t kLong = 3'000'000;  // more than a socket holds
  const std::string path_ = "control-" + std::to_string(::getpid()) + ".ctl";
  int asked_ = 0;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, EachRequestHasItsAnswer) {
  const UniqueFd one = client();
  const UniqueFd other = client();
  for (int i = 0; i < 3; ++i) {
    ask(one, "short");
    ask(other, "short");
    EXPECT_EQ(line(one), "xxxxx\n");
    EXPECT_EQ(line(other), "xxxxx\n");
  }
}

TEST_F(ControlServerTest, AnAnswerIsAsLongAsItMust) {
  const UniqueFd one = client();
  ask(one, "long");
  ask(one, "short");
  EXPECT_EQ(line(one).size(), kLong + 1);
  EXPECT_EQ(line(one), "xxxxx\n") << "the next request had to wait";
}

TEST_F(ControlServerTest, WhoDoesNotReadHoldsNobodyUp) {
  const UniqueFd deaf = client();
  ask(deaf, "long");
  for (int i = 0; i < 100; ++i) {
    ask(deaf, "short");
    server_->service();
  }
  EXPECT_EQ(asked_, 1) << "it is not listened to";
  const UniqueFd other = client();
  ask(other, "short");
  EXPECT_EQ(line(other), "xxxxx\n");
}

TEST_F(ControlServerTest, WhoGoesAmidAnAnswerIsForgotten) {
  for (int i = 0; i < 200; ++i) {  // more than it has room for
    const UniqueFd gone = client();
    ask(gone, "long");
    server_->service();
  }
  const UniqueFd other = client();
  ask(other, "short");
  EXPECT_EQ(line(other), "xxxxx\n");
}

}  // namespace
}  // namespace emu
