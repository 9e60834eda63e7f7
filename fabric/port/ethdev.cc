#include "fabric/port/ethdev.h"

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "emu/base/log.h"
#include "fabric/port/ethernet.h"

namespace fabric {
namespace {

constexpr std::uint16_t kDeviceBurst = 32;
constexpr std::uint16_t kRingSlots = 1024;
// Both rings full, bursts under way, and the caches.
constexpr unsigned kMbufs = 4 * kRingSlots - 1;

// One DPDK port as a host on the wire.
class EthdevDatagrams final : public Datagrams {
 public:
  EthdevDatagrams(std::uint16_t port, std::string device, rte_mempool* pool, Station self)
      : port_(port), device_(std::move(device)), pool_(pool), self_(self) {}
  ~EthdevDatagrams() override {
    (void)rte_eth_dev_stop(port_);
    (void)rte_eth_dev_close(port_);
    (void)rte_eal_hotplug_remove("vdev", device_.c_str());
    rte_mempool_free(pool_);
  }
  EthdevDatagrams(const EthdevDatagrams&) = delete;
  EthdevDatagrams& operator=(const EthdevDatagrams&) = delete;

  bool receive(const Sink& sink) override;
  void send(std::span<const Outgoing> batch) override;
  int fd() const override { return -1; }

 private:
  void take(std::span<const std::byte> frame, const Sink& sink);
  void learn(const Station& station);
  const Station* find(const emu::UdpAddress& address) const;
  std::span<std::byte> add_frame(std::size_t bytes);
  void push();

  const std::uint16_t port_;
  const std::string device_;
  rte_mempool* const pool_;
  const Station self_;
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
  std::array<rte_mbuf*, kDeviceBurst> in{};
  const std::uint16_t count = rte_eth_rx_burst(port_, 0, in.data(), kDeviceBurst);
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
                    device_));
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
  rte_mbuf* mbuf = rte_pktmbuf_alloc(pool_);
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
  const std::uint16_t sent = rte_eth_tx_burst(port_, 0, out_.data(), out_count_);
  for (std::uint16_t i = sent; i < out_count_; ++i) rte_pktmbuf_free(out_[i]);
  out_count_ = 0;
}

void EthdevDatagrams::send(std::span<const Outgoing> batch) {
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

}  // namespace

emu::Result<std::unique_ptr<Datagrams>> open_ethdev(const std::string& device,
                                                    emu::UdpAddress address, std::uint32_t mtu) {
  const auto comma = device.find(',');
  const std::string name = device.substr(0, comma);
  const std::string arguments = comma == std::string::npos ? "" : device.substr(comma + 1);
  if (const int e = rte_eal_hotplug_add("vdev", name.c_str(), arguments.c_str()); e != 0) {
    return emu::fail("ethdev {}: {} (is the interface there, and may we open it?)", device,
                     rte_strerror(-e));
  }
  const auto remove = [&] { (void)rte_eal_hotplug_remove("vdev", name.c_str()); };
  std::uint16_t port = 0;
  rte_ether_addr mac{};
  if (rte_eth_dev_get_port_by_name(name.c_str(), &port) != 0 ||
      rte_eth_macaddr_get(port, &mac) != 0) {
    remove();
    return emu::fail("ethdev {}: no port, or no address", device);
  }
  const std::string pool_name = "eth-" + std::to_string(port);
  const auto room = static_cast<std::uint16_t>(
      std::max<std::uint32_t>(mtu + kEthernetBytes + 4, 2048) + RTE_PKTMBUF_HEADROOM);
  rte_mempool* pool =
      rte_pktmbuf_pool_create(pool_name.c_str(), kMbufs, 32, 0, room, SOCKET_ID_ANY);
  if (pool == nullptr) {
    remove();
    return emu::fail("ethdev {}: {} buffers of {} bytes: {}", device, kMbufs, room,
                     rte_strerror(rte_errno));
  }
  if (auto started = start_device(port, mtu, pool, device); !started) {
    remove();
    rte_mempool_free(pool);
    return std::unexpected(started.error());
  }
  Station self{{}, address};
  std::copy_n(mac.addr_bytes, self.mac.size(), self.mac.begin());
  return std::make_unique<EthdevDatagrams>(port, name, pool, self);
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
