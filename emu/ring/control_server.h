// The control socket of a daemon: a JSON line in, a JSON line out, any number of clients of this
// user. An answer that is longer than a message comes in several, the last one ends the line.
// Nothing blocks; a client that does not read its answer is not listened to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "emu/ring/fd.h"

namespace emu {

class ControlServer {
 public:
  using Answer = std::function<std::string(const std::string& request)>;

  static Result<std::unique_ptr<ControlServer>> open(const std::string& path, Answer answer);
  ~ControlServer();  // removes the socket

  void service();
  int fd() const { return epoll_.get(); }  // readable when there is something to service
  // The socket is gone from its folder, or another daemon's is there: nobody can ask us any more.
  bool removed() const;

 private:
  ControlServer(std::string path, Answer answer);
  void accept_all();
  struct Client {
    UniqueFd socket;
    std::string unsent;  // of an answer; until it is empty no request is taken
  };
  bool serve(Client& client);  // false: it has gone
  bool send(Client& client);   // what the socket takes; false: it has gone

  std::string path_;
  std::uint64_t inode_ = 0;
  Answer answer_;
  std::vector<Client> clients_;
  UniqueFd listener_;
  UniqueFd epoll_;
};

}  // namespace emu
