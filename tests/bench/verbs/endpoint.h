// One end of the benchmark's connection: an RC queue pair over plain verbs, and the pipe to the
// process at the other end.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <vector>

namespace bench {

inline constexpr std::uint32_t kMessageBytes = 64;
inline constexpr std::uint32_t kDepth = 256;
inline constexpr std::uint32_t kBlockBytes = 65536;  // of a large RDMA WRITE
inline constexpr std::uint32_t kListRequests = 32;   // that ibv_post_send takes at once

// Where a block lies. Of `plain` memory hcad has to ask the kernel; what a program allocated to be
// shared (a memfd that cannot shrink) hcad maps, as UCX's transports map what they allocate.
enum class Memory : std::uint8_t { plain, shared };

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
  // RDMA WRITEs into the other end's block; the last of a list asks for a completion.
  void write_list(std::uint32_t bytes, std::uint32_t count, Memory memory);
  void write_with_immediate();  // of kMessageBytes
  Completion wait();
  // The same, asleep on the completion channel until there is one.
  Completion wait_asleep();
  void drain();  // takes the completions of all that was posted
  std::uint64_t now() const;

 private:
  struct RemoteBlock {
    std::uint64_t address = 0;
    std::uint64_t key = 0;
  };
  struct Block {
    char* data = nullptr;
    ibv_mr* mr = nullptr;
    RemoteBlock remote;
  };
  Block& block(Memory memory) { return blocks_[static_cast<std::size_t>(memory)]; }
  void connect(int pair);
  void modify(ibv_qp_attr& attributes, int mask);
  bool poll(Completion& done);
  void post(ibv_send_wr& first);

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq_ex* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  std::size_t completions_due_ = 0;  // of what was posted
  std::array<char, kMessageBytes> message_{};
  std::vector<char> block_ = std::vector<char>(kBlockBytes);
  std::array<Block, 2> blocks_{};  // by Memory
};

[[noreturn]] void stop(const char* what);

}  // namespace bench
