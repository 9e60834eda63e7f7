// An application in the same process as its Host: it uses the shared rings as hca/verbs does,
// without sockets and without waiting. Unit tests, the fuzz target and the whole-cluster simulation
// use it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hca/host/host.h"

namespace sim {

// Memory of all clients is this process's own; ranges can be made to fault.
class LocalMemory : public hca::Memory {
 public:
  std::size_t read(std::span<const hca::MemoryPiece> pieces) override;
  std::size_t write(std::span<const hca::MemoryPiece> pieces) override;

  // Addresses in [begin, begin + length) are not there any more.
  void unmap(const void* begin, std::size_t length);
  // The client has ended: all its addresses are gone, and gone() says so.
  void end(hca::ClientId client) { ended_.push_back(client); }
  bool gone(hca::ClientId client) const override;
  std::uint64_t calls = 0;
  std::uint64_t pieces_seen = 0;
  // Before each write.
  std::function<void(std::span<const hca::MemoryPiece>)> on_write;

 private:
  bool there(const hca::MemoryPiece& piece) const;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> holes_;
  std::vector<hca::ClientId> ended_;
};

struct Queue {
  std::uint32_t number = 0;
  hca::QpType type = hca::QpType::rc;
  hca::QpLayout layout{};
  hca::QpCapacity capacity;
  hca::QpPage* page = nullptr;
  std::uint8_t* region = nullptr;
  std::uint32_t credit_used = 0;
};

struct Shared {  // an SRQ
  std::uint32_t number = 0;
  hca::SrqLayout layout{};
  hca::SrqPage* page = nullptr;
  std::uint8_t* region = nullptr;
};

struct Completions {
  std::uint32_t number = 0;
  hca::CqPage* page = nullptr;
  std::uint32_t depth = 0;
};

// A send work request, as an application would say it.
struct Send {
  hca::WrOpcode opcode = hca::WrOpcode::send;
  std::uint64_t wr_id = 0;
  std::uint8_t flags = hca::kWqeSignaled;
  std::span<const hca::Sge> sges;
  std::span<const std::uint8_t> inline_bytes;
  std::uint64_t remote_addr = 0;
  std::uint32_t rkey = 0;
  std::uint64_t compare_add = 0;  // atomics
  std::uint64_t swap = 0;
  const hca::WqeExtension* extension = nullptr;  // bind_mw; UD with a GRH
  std::uint32_t imm = 0;
  std::uint32_t remote_qpn = 0;
  std::uint32_t remote_qkey = 0;
  emu::Lid dlid = 0;
  std::uint8_t sl = 0;
  std::uint64_t launch_ns = 0;
  std::uint32_t launch_span_ns = 0;
  std::uint32_t xrc_srqn = 0;
};

// How two RC or UC QPs are joined; the fields of ibv_modify_qp that tests vary.
struct Path {
  emu::NodeId dest = 0;
  std::uint32_t dest_qpn = 0;
  std::uint8_t sl = 0;
  std::uint8_t mtu = 4;  // IBV_MTU_2048
  std::uint8_t timeout = 10;
  std::uint8_t retry_cnt = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 12;
  std::uint8_t reads = 4;         // and atomics under way
  std::uint8_t reads_served = 4;  // of the peer's
  std::uint32_t send_psn = 0;
  std::uint32_t recv_psn = 0;
  std::uint32_t access =
      hca::kAccessRemoteWrite | hca::kAccessRemoteRead | hca::kAccessRemoteAtomic;
  bool global = false;
};

class App {
 public:
  explicit App(hca::Host& host);
  ~App();  // as if the process had ended
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  hca::ClientId client() const { return client_; }
  std::uint32_t pd() const { return pd_; }
  // mapped: Host touches the bytes itself; else through Memory.
  hca::MrKeys reg(void* bytes, std::size_t length, std::uint32_t access, bool mapped = true);
  Completions make_cq(std::uint32_t depth);
  Queue make_qp(hca::QpType type, const Completions& send_cq, const Completions& recv_cq,
                const hca::QpCapacity& capacity, bool signal_all = false,
                std::uint32_t srq = hca::kNoSrqNumber);
  Shared make_srq(std::uint32_t max_wr, std::uint32_t max_sge, std::uint32_t limit = 0);
  // XRC: a QP that receives, in a domain; an SRQ of it that completes into `cq`.
  Queue make_xrc_recv(std::uint32_t xrcd);
  Shared make_xrc_srq(std::uint32_t xrcd, const Completions& cq, std::uint32_t max_wr);
  static int post_shared(Shared& srq, std::uint64_t wr_id, std::span<const hca::Sge> sges);
  int connect(const Queue& queue, const Path& path, emu::Cycle now);  // RESET -> RTS
  int ready_ud(const Queue& queue, std::uint32_t qkey, emu::Cycle now);
  int modify(const Queue& queue, hca::QpAttributes attributes, std::uint32_t mask, emu::Cycle now);

  // 0 or ENOMEM (queue or credit), as ibv_post_send. Rings the doorbell ring; Host must be told by
  // ring().
  int post(Queue& queue, const Send& send);
  int post_recv(Queue& queue, std::uint64_t wr_id, std::span<const hca::Sge> sges);
  void ring(emu::Cycle now) { host_.doorbells(client_, now); }
  static bool poll(Completions& cq, hca::Cqe& cqe);

 private:
  Queue make_qp(const hca::QpSpec& spec);
  Shared make_srq(const hca::SrqSpec& spec);
  hca::Host& host_;
  std::unique_ptr<hca::DoorbellPage> doorbells_;
  hca::ClientId client_ = 0;
  std::uint32_t pd_ = 0;
  // Ring memory outlives the client, as hcad's mappings do.
  std::vector<std::unique_ptr<std::uint64_t[]>> rings_;
  std::uint8_t* ring_memory(std::size_t bytes);
};

}  // namespace sim
