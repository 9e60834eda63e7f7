// The device as the replayer and the generators use it: verbs only, and the small launch extension
// if the library underneath has it. Owns context, PD, memory and queue pairs; knows nothing of
// video.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emu/base/launch_ext.h"
#include "emu/base/result.h"
#include "emu/base/units.h"
#include "tools/replay/words.h"

namespace tools {

// Where a queue pair is reached.
struct Endpoint {
  std::uint16_t lid = 0;
  ibv_gid gid{};  // of Ethernet ports, which have no LID
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  std::uint32_t qkey = 0;
};

class Device {
 public:
  // The named device, or the first there is.
  static emu::Result<Device> open(const std::string& name = "");
  Device(Device&&) noexcept = default;
  Device& operator=(Device&&) noexcept = default;
  ~Device();

  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  // Of one of our queue pairs.
  Endpoint endpoint(const ibv_qp& qp, std::uint32_t psn, std::uint32_t qkey = 0) const {
    return {port_.lid, gid_, qp.qp_num, psn, qkey};
  }
  ibv_ah_attr way_to(const Endpoint& remote, std::uint8_t sl) const;
  ibv_mtu mtu() const { return port_.active_mtu; }
  std::string name() const { return ibv_get_device_name(context_->device); }

  // Launch times and emulated time are there; else time is CLOCK_MONOTONIC and pacing is ours.
  bool has_launch() const { return set_launch_ != nullptr && now_ != nullptr; }
  emu::EmuNs now() const;
  // The next send on `qp` leaves at `launch_ns`, its packets evenly over `span_ns`.
  int set_launch(ibv_qp* qp, emu::EmuNs launch_ns, std::uint32_t span_ns) const;
  // The device has said that it is dead (IBV_EVENT_DEVICE_FATAL): who waits, waits in vain. Reads
  // what asynchronous events there are.
  bool lost();
  int rejected_by(ibv_qp* qp) const;  // router, -1 nobody or unknown, -2 the HCA

 private:
  Device() = default;
  emu::Result<void> choose_gid();
  struct Close {
    void operator()(ibv_context* context) const { ibv_close_device(context); }
    void operator()(ibv_pd* pd) const { ibv_dealloc_pd(pd); }
  };
  std::unique_ptr<ibv_context, Close> context_;
  std::unique_ptr<ibv_pd, Close> pd_;
  ibv_port_attr port_{};
  ibv_gid gid_{};  // the one that addresses of Ethernet ports are made with
  std::uint8_t gid_index_ = 0;
  bool lost_ = false;
  FlitnetSetLaunch* set_launch_ = nullptr;
  FlitnetNow* now_ = nullptr;
  FlitnetRejectedBy* rejected_by_ = nullptr;
};

// Registered memory in a sealed memfd, mapped shared: an HCA process can map the same pages, so
// nothing is copied on the way to it.
class Region {
 public:
  static emu::Result<Region> create(const Device& device, const std::string& name,
                                    std::size_t bytes, int access);
  Region() = default;
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  std::span<std::uint8_t> bytes() const { return bytes_; }
  ibv_sge sge(std::size_t offset, std::size_t count) const;

 private:
  std::span<std::uint8_t> bytes_;
  ibv_mr* mr_ = nullptr;
};

struct Completion {
  std::uint64_t wr_id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint32_t bytes = 0;
  std::uint32_t qpn = 0;   // ours
  emu::EmuNs time_ns = 0;  // taken by the HCA if it can, else when it was polled
};

// A completion queue with the HCA's own times.
class CompletionQueue {
 public:
  static emu::Result<CompletionQueue> create(const Device& device, int entries);
  // Hands over what has completed, at most `count_max`; returns how many, or -1 for a dead device.
  int poll(const Device& device, int count_max, const std::function<void(const Completion&)>& take);
  ibv_cq* cq() const { return cq_.get(); }

 private:
  struct Destroy {
    void operator()(ibv_cq* cq) const { ibv_destroy_cq(cq); }
  };
  int poll_plain(const Device& device, int count_max,
                 const std::function<void(const Completion&)>& take);

  std::unique_ptr<ibv_cq, Destroy> cq_;
  std::vector<Completion> batch_;
  ibv_cq_ex* ex_ = nullptr;  // the same queue, if it gives times
  bool wallclock_ = false;   // times are nanoseconds; else ticks of core_khz_
  std::uint64_t core_khz_ = 0;
};

struct QpSizes {
  std::uint32_t sends = 1;
  std::uint32_t receives = 1;
  std::uint32_t send_sges = 1;
};
struct DestroyQp {
  void operator()(ibv_qp* qp) const { ibv_destroy_qp(qp); }
};
using Qp = std::unique_ptr<ibv_qp, DestroyQp>;

// A queue pair in INIT that may receive.
emu::Result<Qp> create_qp(const Device& device, ibv_qp_type type, const CompletionQueue& send,
                          const CompletionQueue& receive, const QpSizes& sizes,
                          std::uint32_t qkey = 0);
// "lid=... gid=... qpn=... psn=... qkey=...", as peers tell each other.
std::string words_of(const Endpoint& endpoint);
std::optional<Endpoint> endpoint_of(const Words& words);
// RC, INIT to RTS towards `remote`; packets and retries as a lossless fabric needs them.
emu::Result<void> connect_rc(ibv_qp* qp, const Device& device, const Endpoint& remote,
                             std::uint8_t sl, std::uint32_t psn);
emu::Result<void> ready_ud(ibv_qp* qp, std::uint32_t psn);

}  // namespace tools
