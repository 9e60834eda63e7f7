#include "fabric/port/ethdev.h"

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "emu/base/log.h"
#include "fabric/port/ethernet.h"
#include "fabric/port/link_watch.h"

namespace fabric {
namespace {

constexpr std::uint16_t kDeviceBurst = 32;
constexpr std::uint16_t kRingSlots = 1024;
// Both rings full, bursts under way, and the caches.
constexpr unsigned kMbufs = 4 * kRingSlots - 1;

// A card that came back and cannot be opened yet is tried again so often.
constexpr std::uint64_t kReopenEveryNs = 100'000'000;
constexpr int kReopensQuiet = 10;

// A socket of AF_XDP; by its inode, for the descriptor may be another file's by now.
struct XdpSocket {
  int fd = -1;
  ino_t inode = 0;
  friend bool operator==(const XdpSocket&, const XdpSocket&) = default;
};

// A port that runs, with the buffers and sockets that are its own.
struct Device {
  std::uint16_t port = 0;
  rte_mempool* pool = nullptr;
  std::vector<XdpSocket> sockets;
  rte_ether_addr mac{};
  unsigned interface = 0;  // of the kernel's; 0: none
};

emu::Result<Device> open_device(const std::string& device, std::uint32_t mtu);
void close_device(const Device& device, const std::string& name);

// A port that was opened anew, and who watches its link since.
struct Renewed {
  Device device;
  LinkWatch link;
};

Station station_of(const Device& device, emu::UdpAddress address) {
  Station self{{}, address};
  std::copy_n(device.mac.addr_bytes, self.mac.size(), self.mac.begin());
  return self;
}

// "net_af_packet0" of "net_af_packet0,iface=veth0".
std::string name_of_device(const std::string& device) { return device.substr(0, device.find(',')); }

// One DPDK port as a host on the wire.
class EthdevDatagrams final : public Datagrams {
 public:
  EthdevDatagrams(std::string arguments, std::uint32_t mtu, const Device& device,
                  emu::UdpAddress address)
      : arguments_(std::move(arguments)),
        name_(name_of_device(arguments_)),
        mtu_(mtu),
        device_(device),
        self_(station_of(device, address)),
        link_(device.port, device.interface) {}
  ~EthdevDatagrams() override;
  EthdevDatagrams(const EthdevDatagrams&) = delete;
  EthdevDatagrams& operator=(const EthdevDatagrams&) = delete;

  bool receive(const Sink& sink) override;
  void send(std::span<const Outgoing> batch) override;
  void service(std::uint64_t host_ns) override;
  int fd() const override { return -1; }

 private:
  void take(std::span<const std::byte> frame, const Sink& sink);
  void learn(const Station& station);
  const Station* find(const emu::UdpAddress& address) const;
  std::span<std::byte> add_frame(std::size_t bytes);
  void push();
  void begin_renewal();
  bool end_renewal(std::uint64_t host_ns);

  const std::string arguments_;
  const std::string name_;
  const std::uint32_t mtu_;
  std::optional<Device> device_;  // none: being opened anew, or that has failed
  std::future<emu::Result<Renewed>> renewal_;
  Station self_;
  LinkWatch link_;
  bool link_up_ = true;  // as the log has it
  std::uint64_t reopen_at_ns_ = 0;
  int reopens_ = 0;  // in vain, since the link went down
  // Where nodes live. Only authentic datagrams are believed, so nobody can turn a node's frames
  // away; the answer to a hello goes to where the hello came from.
  std::vector<Station> stations_;
  std::size_t replaced_ = 0;
  std::optional<Station> speaking_;
  bool warned_ = false;
  std::uint16_t identification_ = 0;
  std::array<rte_mbuf*, kDeviceBurst> out_{};
  std::uint16_t out_count_ = 0;
};

bool EthdevDatagrams::receive(const Sink& sink) {
  if (!device_) return false;
  std::array<rte_mbuf*, kDeviceBurst> in{};
  const std::uint16_t count = rte_eth_rx_burst(device_->port, 0, in.data(), kDeviceBurst);
  for (std::uint16_t i = 0; i < count; ++i) {
    // Of a frame in several segments the first is a piece, as a fragment is.
    take({rte_pktmbuf_mtod(in[i], const std::byte*), in[i]->data_len}, sink);
    rte_pktmbuf_free(in[i]);
  }
  return count == kDeviceBurst;
}

void EthdevDatagrams::take(std::span<const std::byte> frame, const Sink& sink) {
  if (const auto udp = parse_udp_frame(frame, self_)) {
    speaking_ = udp->from;
    if (sink(udp->from.address, udp->datagram)) learn(udp->from);
    speaking_.reset();
  } else if (const auto reply = answer_arp(frame, self_)) {
    const std::span<std::byte> out = add_frame(reply->size());
    if (!out.empty()) std::memcpy(out.data(), reply->data(), reply->size());
    push();
  } else if (!warned_ && is_piece(frame, self_)) {
    warned_ = true;
    emu::log_warning(
        fmt::format("{}: datagrams that come in pieces are lost: attach.mtu is above the path's, "
                    "or offload is on at the sender (ethtool -K IF tx off)",
                    name_));
  }
}

void EthdevDatagrams::learn(const Station& station) {
  for (Station& known : stations_) {
    if (known.address.ip != station.address.ip) continue;
    known.mac = station.mac;
    return;
  }
  if (stations_.size() < static_cast<std::size_t>(emu::kNodesMax)) {
    stations_.push_back(station);
  } else {
    stations_[replaced_++ % stations_.size()] = station;
  }
}

const Station* EthdevDatagrams::find(const emu::UdpAddress& address) const {
  if (speaking_ && speaking_->address == address) return &*speaking_;
  const auto it =
      std::ranges::find_if(stations_, [&](const Station& s) { return s.address.ip == address.ip; });
  return it == stations_.end() ? nullptr : &*it;
}

// A frame of the burst that is being built; empty when no mbuf is left: lost on the way.
std::span<std::byte> EthdevDatagrams::add_frame(std::size_t bytes) {
  if (out_count_ == kDeviceBurst) push();
  rte_mbuf* mbuf = rte_pktmbuf_alloc(device_->pool);
  if (mbuf == nullptr) return {};
  auto* data =
      reinterpret_cast<std::byte*>(rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(bytes)));
  if (data == nullptr) {
    rte_pktmbuf_free(mbuf);
    return {};
  }
  out_[out_count_++] = mbuf;
  return {data, bytes};
}

void EthdevDatagrams::push() {
  const std::uint16_t sent = rte_eth_tx_burst(device_->port, 0, out_.data(), out_count_);
  for (std::uint16_t i = sent; i < out_count_; ++i) rte_pktmbuf_free(out_[i]);
  out_count_ = 0;
}

void EthdevDatagrams::send(std::span<const Outgoing> batch) {
  if (!device_) return;
  for (const Outgoing& outgoing : batch) {
    const Station* station = find(outgoing.to);
    if (station == nullptr) continue;
    const Station to{station->mac, outgoing.to};
    const auto& [bytes, segment] = outgoing.train;
    for (std::size_t at = 0; at < bytes.size(); at += segment) {
      const auto payload = bytes.subspan(at, std::min(segment, bytes.size() - at));
      const std::span<std::byte> frame = add_frame(kUdpHeadersBytes + payload.size());
      if (frame.empty()) break;
      std::memcpy(&frame[kUdpHeadersBytes], payload.data(), payload.size());
      write_udp_headers(frame, self_, to, identification_++);
    }
  }
  if (out_count_ != 0) push();
}

EthdevDatagrams::~EthdevDatagrams() {
  if (renewal_.valid()) {
    if (const auto renewed = renewal_.get()) device_ = renewed->device;
  }
  if (device_) close_device(*device_, name_);
}

// A driver's queues may not outlive the link: those of af_xdp take and send nothing any more once
// the interface was down. So the port is made anew when it comes back.
void EthdevDatagrams::service(std::uint64_t host_ns) {
  if (renewal_.valid() && !end_renewal(host_ns)) return;
  link_.look();
  if (link_up_ && link_.was_down()) {
    link_up_ = false;
    reopens_ = 0;
    emu::log_warning(fmt::format("{}: its link is down", name_));
  }
  if (!link_up_ && link_.up() && host_ns >= reopen_at_ns_) begin_renewal();
}

// By a thread of its own: closing and opening take a tenth of a second (the kernel waits until
// nobody runs what was there before), and emulated time does not stand still for it. Where no
// thread is to be had the loop does it.
void EthdevDatagrams::begin_renewal() {
  renewal_ = std::async(std::launch::async | std::launch::deferred,
                        [old = std::exchange(device_, std::nullopt), name = name_,
                         arguments = arguments_, mtu = mtu_]() -> emu::Result<Renewed> {
                          if (old) close_device(*old, name);
                          const auto device = open_device(arguments, mtu);
                          if (!device) return std::unexpected(device.error());
                          return Renewed{*device, LinkWatch(device->port, device->interface)};
                        });
}

// False: it is not done yet.
bool EthdevDatagrams::end_renewal(std::uint64_t host_ns) {
  if (renewal_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout) return false;
  auto renewed = renewal_.get();
  if (!renewed) {
    reopen_at_ns_ = host_ns + kReopenEveryNs;
    // The kernel takes a moment to let go of what the closed port had.
    if (++reopens_ == kReopensQuiet) emu::log_warning(renewed.error().message);
    return true;
  }
  device_ = renewed->device;
  self_ = station_of(*device_, self_.address);
  link_ = std::move(renewed->link);
  link_up_ = true;
  emu::log_info(fmt::format("{}: its link is up again", name_));
  return true;
}

emu::Result<void> start_device(std::uint16_t port, std::uint32_t mtu, rte_mempool* pool,
                               const std::string& name) {
  rte_eth_conf conf{};
  std::uint16_t rx = kRingSlots;
  std::uint16_t tx = kRingSlots;
  int e = rte_eth_dev_configure(port, 1, 1, &conf);
  if (e == 0) e = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);
  if (e == 0) e = rte_eth_rx_queue_setup(port, 0, rx, SOCKET_ID_ANY, nullptr, pool);
  if (e == 0) e = rte_eth_tx_queue_setup(port, 0, tx, SOCKET_ID_ANY, nullptr);
  if (e != 0) return emu::fail("ethdev {}: {}", name, rte_strerror(-e));
  // Some drivers cannot be asked; then the interface has the MTU it was given.
  (void)rte_eth_dev_set_mtu(port, static_cast<std::uint16_t>(mtu));
  e = rte_eth_dev_start(port);
  if (e != 0) return emu::fail("ethdev {}: cannot start: {}", name, rte_strerror(-e));
  return {};
}

// All of this process.
std::vector<XdpSocket> xdp_sockets() {
  std::vector<XdpSocket> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int domain = 0;
    socklen_t size = sizeof domain;
    struct stat info {};
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_XDP &&
        ::fstat(fd, &info) == 0) {
      found.push_back({fd, info.st_ino});
    }
  }
  return found;
}

// Those that have come since there were these.
std::vector<XdpSocket> xdp_sockets_since(const std::vector<XdpSocket>& before) {
  std::vector<XdpSocket> found = xdp_sockets();
  std::erase_if(found, [&](const XdpSocket& one) { return std::ranges::count(before, one) != 0; });
  return found;
}

// DPDK 22.11 leaves the socket of an af_xdp port open, and the kernel lets nobody else have its
// queue.
void close_left(const std::vector<XdpSocket>& own) {
  for (const XdpSocket& one : xdp_sockets()) {
    if (std::ranges::count(own, one) != 0) ::close(one.fd);
  }
}

emu::Result<Device> open_device(const std::string& device, std::uint32_t mtu) {
  const std::vector<XdpSocket> of_others = xdp_sockets();
  const std::string name = name_of_device(device);
  const std::string arguments = device.size() == name.size() ? "" : device.substr(name.size() + 1);
  if (const int e = rte_eal_hotplug_add("vdev", name.c_str(), arguments.c_str()); e != 0) {
    return emu::fail("ethdev {}: {} (is the interface there, and may we open it?)", device,
                     rte_strerror(-e));
  }
  const auto remove = [&] {
    (void)rte_eal_hotplug_remove("vdev", name.c_str());
    close_left(xdp_sockets_since(of_others));
  };
  Device out;
  rte_eth_dev_info info{};
  if (rte_eth_dev_get_port_by_name(name.c_str(), &out.port) != 0 ||
      rte_eth_macaddr_get(out.port, &out.mac) != 0) {
    remove();
    return emu::fail("ethdev {}: no port, or no address", device);
  }
  if (rte_eth_dev_info_get(out.port, &info) == 0) out.interface = info.if_index;
  const std::string pool_name = "eth-" + std::to_string(out.port);
  const auto room = static_cast<std::uint16_t>(
      std::max<std::uint32_t>(mtu + kEthernetBytes + 4, 2048) + RTE_PKTMBUF_HEADROOM);
  out.pool = rte_pktmbuf_pool_create(pool_name.c_str(), kMbufs, 32, 0, room, SOCKET_ID_ANY);
  if (out.pool == nullptr) {
    remove();
    return emu::fail("ethdev {}: {} buffers of {} bytes: {}", device, kMbufs, room,
                     rte_strerror(rte_errno));
  }
  if (auto started = start_device(out.port, mtu, out.pool, device); !started) {
    remove();
    rte_mempool_free(out.pool);
    return std::unexpected(started.error());
  }
  out.sockets = xdp_sockets_since(of_others);
  return out;
}

void close_device(const Device& device, const std::string& name) {
  (void)rte_eth_dev_stop(device.port);
  (void)rte_eth_dev_close(device.port);
  (void)rte_eal_hotplug_remove("vdev", name.c_str());
  close_left(device.sockets);
  rte_mempool_free(device.pool);
}

}  // namespace

emu::Result<std::unique_ptr<Datagrams>> open_ethdev(const std::string& device,
                                                    emu::UdpAddress address, std::uint32_t mtu) {
  const auto opened = open_device(device, mtu);
  if (!opened) return std::unexpected(opened.error());
  return std::make_unique<EthdevDatagrams>(device, mtu, *opened, address);
}

emu::Result<std::unique_ptr<EthdevPort>> EthdevPort::open(const EthdevPortOptions& options,
                                                          PacketMemory& memory) {
  const auto address = emu::UdpAddress::resolve(options.listen);
  if (!address) return std::unexpected(address.error());
  if (address->ip == 0) {
    return emu::fail("listen {}: an ethdev port is a host of its own: give it an address",
                     options.listen);
  }
  auto datagrams = open_ethdev(options.device, *address, options.session.mtu);
  if (!datagrams) return std::unexpected(datagrams.error());
  auto pools = make_pools(options.session, memory);
  if (!pools) return std::unexpected(pools.error());
  return std::unique_ptr<EthdevPort>(
      new EthdevPort(options.session, memory, std::move(*pools), std::move(*datagrams)));
}

}  // namespace fabric
