// Two parties of a rendezvous in one process: any order of start, lines both ways, death noticed.
#include "tools/replay/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace tools {
namespace {

using namespace std::chrono_literals;

class RendezvousTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/rdvXXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Turns both parties until `done`, some thousand times at most.
  template <class Done>
  static bool turn(std::vector<Rendezvous*> parties, const Rendezvous::Handler& handler,
                   Done done) {
    for (int i = 0; i < 2000 && !done(); ++i) {
      for (Rendezvous* party : parties) party->wait(1ms, handler);
    }
    return done();
  }

  std::string folder_;
};

TEST_F(RendezvousTest, CallerMayComeFirst) {
  auto a = Rendezvous::listen(folder_, "test", "a");
  ASSERT_TRUE(a) << a.error().message;
  const auto peer = a->call("b");
  a->send(peer, "offer n=1");
  a->wait(1ms, {[](auto, const Words&) {}, [](auto) {}});
  EXPECT_FALSE(a->connected(peer));
  auto b = Rendezvous::listen(folder_, "test", "b");
  ASSERT_TRUE(b) << b.error().message;
  std::vector<std::string> heard;
  const Rendezvous::Handler handler{[&](auto from, const Words& words) {
                                      heard.push_back(words.verb());
                                      if (words.verb() != "offer") return;
                                      EXPECT_EQ(b->name(from), "a");
                                      EXPECT_EQ(words.number("n"), 1U);
                                      b->send(from, "accept");
                                    },
                                    [](auto) { ADD_FAILURE() << "nobody left"; }};
  EXPECT_TRUE(turn({&*a, &*b}, handler, [&] { return heard.size() == 2; }));
  EXPECT_EQ(heard, (std::vector<std::string>{"offer", "accept"}));
}

TEST_F(RendezvousTest, DeathIsNoticedOnce) {
  auto a = Rendezvous::listen(folder_, "test", "a");
  ASSERT_TRUE(a);
  const auto peer = a->call("b");
  int gone = 0;
  const Rendezvous::Handler handler{[](auto, const Words&) {},
                                    [&](auto who) {
                                      EXPECT_EQ(who, peer);
                                      ++gone;
                                    }};
  {
    auto b = Rendezvous::listen(folder_, "test", "b");
    ASSERT_TRUE(b);
    EXPECT_TRUE(turn({&*a, &*b}, handler, [&] { return a->connected(peer); }));
  }
  EXPECT_TRUE(turn({&*a}, handler, [&] { return gone > 0; }));
  for (int i = 0; i < 20; ++i) a->wait(1ms, handler);
  EXPECT_EQ(gone, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/test.b.sock"));
}

TEST_F(RendezvousTest, SocketOfADeadProcessIsTakenOver) {
  const std::string path = folder_ + "/test.a.sock";
  {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::close(fd);  // as after SIGKILL: the file stays, nobody listens
  }
  auto a = Rendezvous::listen(folder_, "test", "a");
  EXPECT_TRUE(a) << a.error().message;
  auto second = Rendezvous::listen(folder_, "test", "a");
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("another test runs as a"), std::string::npos);
}

TEST_F(RendezvousTest, EndlessLineEndsTheConversation) {
  auto a = Rendezvous::listen(folder_, "test", "a");
  auto b = Rendezvous::listen(folder_, "test", "b");
  ASSERT_TRUE(a && b);
  const auto peer = a->call("b");
  for (int i = 0; i < 10; ++i) a->send(peer, std::string(1000, 'x') + (i == 9 ? "" : "y"));
  // Lines of 1001 bytes are fine; one of 100 000 is not.
  int lines = 0;
  int gone = 0;
  const Rendezvous::Handler handler{[&](auto, const Words&) { ++lines; }, [&](auto) { ++gone; }};
  EXPECT_TRUE(turn({&*a, &*b}, handler, [&] { return lines == 10; }));
  a->send(peer, std::string(100'000, 'z'));
  EXPECT_TRUE(turn({&*a, &*b}, handler, [&] { return gone == 2; }));
  EXPECT_EQ(lines, 10);
}

TEST_F(RendezvousTest, PathTooLongIsSaid) {
  const auto far = Rendezvous::listen(folder_, "test", std::string(120, 'n'));
  ASSERT_FALSE(far);
  EXPECT_NE(far.error().message.find("path too long"), std::string::npos);
}

}  // namespace
}  // namespace tools
