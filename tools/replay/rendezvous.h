// How two processes find one another before their queue pairs know each other: a unix socket per
// process in a common folder, lines of text over it. Peers may start in any order, and one that
// dies is noticed at once, because the kernel closes its socket.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/result.h"
#include "tools/replay/words.h"

namespace tools {

using WallTime = std::chrono::steady_clock::time_point;

class Rendezvous {
 public:
  using PeerIndex = std::size_t;  // stays valid until the end
  struct Handler {
    std::function<void(PeerIndex, const Words&)> line;
    std::function<void(PeerIndex)> gone;  // it had been there; it will not come back by itself
  };

  // Listens as <folder>/<kind>.<name>.sock; kind tells replayers from generators.
  static emu::Result<Rendezvous> listen(const std::string& folder, const std::string& kind,
                                        const std::string& name);
  Rendezvous(Rendezvous&&) noexcept;
  Rendezvous& operator=(Rendezvous&&) = delete;
  ~Rendezvous();

  // The conversation with `name`, which need not be there yet: lines wait for it.
  PeerIndex call(const std::string& name);
  void send(PeerIndex peer, std::string line);  // without the line end
  const std::string& name(PeerIndex peer) const { return peers_[peer].name; }
  bool connected(PeerIndex peer) const { return peers_[peer].state == State::up; }
  bool gone(PeerIndex peer) const { return peers_[peer].state == State::gone; }

  // Sleeps until something comes or `timeout` is over, connects, reads, writes. Never blocks
  // longer.
  void wait(std::chrono::nanoseconds timeout, const Handler& handler);
  // Writes what waits for peers that are there, for at most `timeout`: before the end of a process.
  void flush(std::chrono::milliseconds timeout);

 private:
  enum class State : unsigned char { calling, up, gone };
  struct Peer {
    std::string name;  // empty until an accepted one has said hello
    State state = State::calling;
    bool incoming = false;
    int fd = -1;
    std::uint32_t watched = 0;  // the events that epoll tells of it
    std::string in;
    std::string out;
    WallTime next_try{};
  };

  Rendezvous() = default;
  std::string path_of(const std::string& name) const;
  void try_connect(Peer& peer);
  void watch(PeerIndex index);
  void accept_all();
  void read_from(PeerIndex index, const Handler& handler);
  void write_to(PeerIndex index);
  void take_lines(PeerIndex index, const Handler& handler);
  void drop(PeerIndex index, const Handler& handler);

  std::string folder_;
  std::string kind_;
  std::string name_;
  int listen_fd_ = -1;
  int epoll_fd_ =
      -1;  // peers are many, and hardly ever say something: they are not asked one by one
  std::deque<Peer> peers_;  // a deque: handlers may add peers while one is being read
};

}  // namespace tools
