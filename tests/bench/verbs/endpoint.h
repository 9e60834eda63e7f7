// One end of the benchmark's connection: an RC queue pair over plain verbs, and the pipe to the
// process at the other end.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

namespace bench {

inline constexpr std::uint32_t kMessageBytes = 64;
inline constexpr std::uint32_t kDepth = 256;

struct Completion {
  bool is_receive = false;
  std::uint64_t time_ns = 0;  // emulated
};

class Endpoint {
 public:
  // Opens the node that FLITNET_NODE_SOCKET names and connects with whoever opens the other end of
  // the socket pair. A benchmark stops where it cannot go on: it says why and exits.
  explicit Endpoint(int pair);

  void send();
  void send_at(std::uint64_t launch_ns);
  void receive();  // posts a receive
  Completion wait();
  std::uint64_t now() const;

 private:
  void connect(int pair);
  void modify(ibv_qp_attr& attributes, int mask);

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq_ex* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::array<char, kMessageBytes> message_{};
};

[[noreturn]] void stop(const char* what);

}  // namespace bench
