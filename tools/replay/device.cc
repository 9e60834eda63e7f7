#include "tools/replay/device.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace tools {
namespace {

template <class Function>
Function* extension(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// Ticks of a clock of `khz` kHz: whole milliseconds first, so that nothing overflows.
emu::EmuNs ticks_ns(std::uint64_t ticks, std::uint64_t khz) {
  return ticks / khz * 1'000'000U + ticks % khz * 1'000'000U / khz;
}

}  // namespace

emu::Result<Device> Device::open(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) {
    if (list != nullptr) ibv_free_device_list(list);
    return emu::fail("no RDMA device; start inside `flitnet exec NODE -- ...`");
  }
  Device device;
  for (int i = 0; i < count && !device.context_; ++i) {
    if (!name.empty() && name != ibv_get_device_name(list[i])) continue;
    device.context_.reset(ibv_open_device(list[i]));
  }
  ibv_free_device_list(list);
  if (!device.context_) {
    return emu::fail("cannot open RDMA device {}: {}", name, std::strerror(errno));
  }
  device.pd_.reset(ibv_alloc_pd(device.context()));
  if (!device.pd_) return emu::fail("{}: no protection domain", device.name());
  if (ibv_query_port(device.context(), 1, &device.port_) != 0) {
    return emu::fail("{}: cannot query port 1", device.name());
  }
  if (auto chosen = device.choose_gid(); !chosen) return std::unexpected(chosen.error());
  device.set_launch_ = extension<FlitnetSetLaunch>(kFlitnetSetLaunchName);
  device.now_ = extension<FlitnetNow>(kFlitnetNowName);
  device.rejected_by_ = extension<FlitnetRejectedBy>(kFlitnetRejectedByName);
  return device;
}

// RoCE v2 by an IPv4 address is what routers and all peers know; else the last GID, which is as new
// a kind as the port has.
emu::Result<void> Device::choose_gid() {
  if (port_.link_layer != IBV_LINK_LAYER_ETHERNET) return {};
  bool found = false;
  for (int index = 0; index < port_.gid_tbl_len && index <= 0xff; ++index) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context(), 1, static_cast<std::uint32_t>(index), &entry, 0) != 0) continue;
    found = true;
    gid_ = entry.gid;
    gid_index_ = static_cast<std::uint8_t>(index);
    constexpr std::array<std::uint8_t, 12> kIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const bool by_ip = std::equal(kIpv4.begin(), kIpv4.end(), entry.gid.raw);
    if (by_ip && entry.gid_type == IBV_GID_TYPE_ROCE_V2) break;
  }
  if (!found) return emu::fail("{}: port 1 has no GID", name());
  return {};
}

ibv_ah_attr Device::way_to(const Endpoint& remote, std::uint8_t sl) const {
  ibv_ah_attr way{};
  way.dlid = remote.lid;
  way.sl = sl;
  way.port_num = 1;
  if (port_.link_layer != IBV_LINK_LAYER_ETHERNET) return way;
  way.is_global = 1;
  way.grh.dgid = remote.gid;
  way.grh.sgid_index = gid_index_;
  way.grh.hop_limit = 64;
  return way;
}

// Members go in reverse order of declaration, so the PD before its context; nothing else to do.
Device::~Device() = default;

emu::EmuNs Device::now() const {
  if (has_launch()) return now_(context());
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<emu::EmuNs>(now.tv_sec) * 1'000'000'000U +
         static_cast<emu::EmuNs>(now.tv_nsec);
}

int Device::set_launch(ibv_qp* qp, emu::EmuNs launch_ns, std::uint32_t span_ns) const {
  return has_launch() ? set_launch_(qp, launch_ns, span_ns) : 0;
}

bool Device::lost() {
  pollfd events{.fd = context_->async_fd, .events = POLLIN, .revents = 0};
  while (!lost_ && ::poll(&events, 1, 0) > 0) {
    ibv_async_event event{};
    if (ibv_get_async_event(context(), &event) != 0) break;
    lost_ = event.event_type == IBV_EVENT_DEVICE_FATAL;
    ibv_ack_async_event(&event);
  }
  return lost_;
}

int Device::rejected_by(ibv_qp* qp) const {
  return rejected_by_ != nullptr ? rejected_by_(qp) : -1;
}

emu::Result<Region> Region::create(const Device& device, const std::string& name, std::size_t bytes,
                                   int access) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  bytes = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
  const int fd = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return emu::fail("{}: memfd: {}", name, std::strerror(errno));
  Region region;
  // Sealed against shrinking: whoever maps it too cannot be killed by SIGBUS.
  void* map = MAP_FAILED;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  ::close(fd);
  if (map == MAP_FAILED) return emu::fail("{}: {} bytes: {}", name, bytes, std::strerror(error));
  region.bytes_ = {static_cast<std::uint8_t*>(map), bytes};
  region.mr_ = ibv_reg_mr(device.pd(), map, bytes, access);
  if (region.mr_ == nullptr) {
    return emu::fail("{}: cannot register {} bytes: {}", name, bytes, std::strerror(errno));
  }
  return region;
}

Region::Region(Region&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), mr_(std::exchange(other.mr_, nullptr)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(mr_, other.mr_);
  return *this;
}

Region::~Region() {
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

ibv_sge Region::sge(std::size_t offset, std::size_t count) const {
  return {.addr = reinterpret_cast<std::uint64_t>(bytes_.data() + offset),
          .length = static_cast<std::uint32_t>(count),
          .lkey = mr_->lkey};
}

emu::Result<CompletionQueue> CompletionQueue::create(const Device& device, int entries) {
  CompletionQueue queue;
  ibv_device_attr_ex attributes{};
  if (ibv_query_device_ex(device.context(), nullptr, &attributes) == 0) {
    queue.core_khz_ = attributes.hca_core_clock;
  }
  for (const std::uint64_t time :
       {IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP}) {
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = static_cast<std::uint32_t>(entries);
    wanted.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | time;
    queue.wallclock_ = time == IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    if (!queue.wallclock_ && queue.core_khz_ == 0) continue;
    queue.ex_ = ibv_create_cq_ex(device.context(), &wanted);
    if (queue.ex_ != nullptr) {
      queue.cq_.reset(ibv_cq_ex_to_cq(queue.ex_));
      return queue;
    }
  }
  queue.cq_.reset(ibv_create_cq(device.context(), entries, nullptr, nullptr, 0));
  if (!queue.cq_) return emu::fail("completion queue of {}: {}", entries, std::strerror(errno));
  return queue;
}

int CompletionQueue::poll(const Device& device, int count_max,
                          const std::function<void(const Completion&)>& take) {
  if (ex_ == nullptr) return poll_plain(device, count_max, take);
  ibv_poll_cq_attr attributes{};
  int status = ibv_start_poll(ex_, &attributes);
  if (status == ENOENT) return 0;
  if (status != 0) return -1;
  // Handed over when the poll has ended: who is told of a failure may destroy the queue pair, and
  // that takes the lock of the queue.
  batch_.clear();
  do {
    Completion& done = batch_.emplace_back();
    done.wr_id = ex_->wr_id;
    done.status = ex_->status;
    done.qpn = ibv_wc_read_qp_num(ex_);
    if (done.status == IBV_WC_SUCCESS) {
      done.bytes = ibv_wc_read_byte_len(ex_);
      done.time_ns = wallclock_ ? ibv_wc_read_completion_wallclock_ns(ex_)
                                : ticks_ns(ibv_wc_read_completion_ts(ex_), core_khz_);
    }
    status = static_cast<int>(batch_.size()) < count_max ? ibv_next_poll(ex_) : ENOENT;
  } while (status == 0);
  ibv_end_poll(ex_);
  for (const Completion& done : batch_) take(done);
  return status == ENOENT ? static_cast<int>(batch_.size()) : -1;
}

int CompletionQueue::poll_plain(const Device& device, int count_max,
                                const std::function<void(const Completion&)>& take) {
  int count = 0;
  ibv_wc wc{};
  while (count < count_max) {
    const int got = ibv_poll_cq(cq_.get(), 1, &wc);
    if (got < 0) return -1;
    if (got == 0) break;
    ++count;
    take({.wr_id = wc.wr_id,
          .status = wc.status,
          .bytes = wc.byte_len,
          .qpn = wc.qp_num,
          .time_ns = device.now()});
  }
  return count;
}

emu::Result<Qp> create_qp(const Device& device, ibv_qp_type type, const CompletionQueue& send,
                          const CompletionQueue& receive, const QpSizes& sizes,
                          std::uint32_t qkey) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = send.cq();
  wanted.recv_cq = receive.cq();
  wanted.qp_type = type;
  wanted.cap.max_send_wr = sizes.sends;
  wanted.cap.max_recv_wr = sizes.receives;
  wanted.cap.max_send_sge = sizes.send_sges;
  wanted.cap.max_recv_sge = 1;
  Qp qp(ibv_create_qp(device.pd(), &wanted));
  if (!qp) return emu::fail("{}: queue pair: {}", device.name(), std::strerror(errno));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = qkey;
  const int kind = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  const int error =
      ibv_modify_qp(qp.get(), &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | kind);
  if (error != 0)
    return emu::fail("{}: queue pair to INIT: {}", device.name(), std::strerror(error));
  return qp;
}

std::string words_of(const Endpoint& endpoint) {
  std::string gid;
  for (const std::uint8_t byte : endpoint.gid.raw) gid += fmt::format("{:02x}", byte);
  return fmt::format("lid={} gid={} qpn={} psn={} qkey={}", endpoint.lid, gid, endpoint.qpn,
                     endpoint.psn, endpoint.qkey);
}

std::optional<Endpoint> endpoint_of(const Words& words) {
  const auto lid = words.number("lid", 0xffff);
  const auto qpn = words.number("qpn", 0xffffff);
  const auto psn = words.number("psn", 0xffffff);
  const auto qkey = words.number("qkey", 0xffffffff);
  if (!lid || !qpn || !psn || !qkey) return std::nullopt;
  Endpoint endpoint{.lid = static_cast<std::uint16_t>(*lid),
                    .qpn = static_cast<std::uint32_t>(*qpn),
                    .psn = static_cast<std::uint32_t>(*psn),
                    .qkey = static_cast<std::uint32_t>(*qkey)};
  const std::string gid = words.text("gid");
  if (gid.size() != 2 * std::size(endpoint.gid.raw)) return std::nullopt;
  for (std::size_t i = 0; i < std::size(endpoint.gid.raw); ++i) {
    const char* digits = gid.data() + 2 * i;
    const auto [stop, error] = std::from_chars(digits, digits + 2, endpoint.gid.raw[i], 16);
    if (error != std::errc{} || stop != digits + 2) return std::nullopt;
  }
  return endpoint;
}

emu::Result<void> connect_rc(ibv_qp* qp, const Device& device, const Endpoint& remote,
                             std::uint8_t sl, std::uint32_t psn) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = device.mtu();
  attributes.dest_qp_num = remote.qpn;
  attributes.rq_psn = remote.psn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;  // 0.64 ms: less than a frame time
  attributes.ah_attr = device.way_to(remote, sl);
  int error = ibv_modify_qp(qp, &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return emu::fail("queue pair to RTR: {}", std::strerror(error));
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 18;  // 1.07 s for one packet's answer: far beyond any queue of the fabric
  attributes.retry_cnt = 3;
  attributes.rnr_retry = 7;  // without end: a slow sink is not a dead one
  attributes.sq_psn = psn;
  attributes.max_rd_atomic = 1;
  error = ibv_modify_qp(qp, &attributes,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return emu::fail("queue pair to RTS: {}", std::strerror(error));
  return {};
}

emu::Result<void> ready_ud(ibv_qp* qp, std::uint32_t psn) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  int error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
  if (error != 0) return emu::fail("queue pair to RTR: {}", std::strerror(error));
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn;
  error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
  if (error != 0) return emu::fail("queue pair to RTS: {}", std::strerror(error));
  return {};
}

}  // namespace tools
