// The control socket of a daemon: a JSON line in, a JSON line out, any number of clients of this
// user. Nothing blocks; a client that does not read its answer loses it.
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

 private:
  ControlServer(std::string path, Answer answer);
  void accept_all();
  bool serve(int client);  // false: it has gone

  std::string path_;
  Answer answer_;
  std::vector<UniqueFd> clients_;
  UniqueFd listener_;
  UniqueFd epoll_;
};

}  // namespace emu
