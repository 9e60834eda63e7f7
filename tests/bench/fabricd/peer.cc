// Nodes without an HCA: attaches any number of nodes to a running fabricd from one process, sends
// packets at Poisson launch times to the other nodes, and checks that each arrives once, in order
// and unchanged. Prints one line of JSON. Used by tests/apps/test_fabricd.py and by hand to load
// fabricd.
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "emu/base/json_line.h"
#include "emu/base/prng.h"
#include "emu/cli/command_line.h"
#include "emu/clock/host.h"
#include "emu/config/config.h"
#include "hca/attach/shm.h"
#include "hca/attach/udp.h"

namespace {

struct Options {
  std::string run_dir;
  std::vector<std::string> nodes;
  double load = 0.6;     // of each link
  double seconds = 5;    // host time of sending
  double attach_s = 10;  // to wait for the fabric
  std::uint32_t flits = 40;
  std::uint64_t seed = 1;
  std::uint32_t reservation_mbps = 0;  // > 0: each node reserves so much towards the next one
  bool rejoin = false;                 // a lost fabric is waited for
  bool poll = false;                   // never naps
  std::string udp;                     // HOST:PORT of fabricd: attach by UDP; else by shared memory
};

std::unique_ptr<hca::Attachment> attach_to(const Options& options, const std::string& name,
                                           const emu::Config& config) {
  if (options.udp.empty()) return hca::make_shm_attachment({options.run_dir, name});
  const std::string key_file =
      config.attach.key_file.empty() ? options.run_dir + "/cluster.key" : config.attach.key_file;
  const auto key = emu::read_key_file(key_file);
  auto made = key ? hca::make_udp_attachment({.fabric = options.udp,
                                              .node_name = name,
                                              .cluster_key = *key,
                                              .mtu = config.attach.mtu})
                  : std::unexpected(key.error());
  if (made) return std::move(*made);
  std::fprintf(stderr, "peer: %s\n", made.error().message.c_str());
  std::exit(1);
}

// The front of each packet; the rest repeats the low byte of the sequence.
struct Stamp {
  std::uint64_t sequence;  // per source and destination
  std::uint16_t source;
  std::uint16_t dest;
  std::uint32_t session;
};

struct Totals {
  std::uint64_t sent = 0, received = 0, injected = 0, corrupt = 0, lost = 0, disordered = 0;
  std::uint64_t acks = 0, nacks = 0, blocked = 0, sessions = 0;
  std::uint64_t latency_cycles = 0, launch_wait_cycles = 0, early = 0;
  int nack_router = -1;
};

class PeerNode {
 public:
  PeerNode(const Options& options, const std::string& name, std::size_t fabric_nodes,
           const emu::Config& config, Totals& totals)
      : options_(options),
        attach_(attach_to(options, name, config)),
        totals_(totals),
        prng_(options.seed ^ std::hash<std::string>{}(name)),
        next_out_(fabric_nodes),
        next_in_(fabric_nodes),
        session_in_(fabric_nodes),
        launch_of_(kCookies),
        flit_bytes_(config.network.flit_bits / 8),
        control_flits_(static_cast<std::uint16_t>(config.network.control_packet_size)) {
    const auto lanes = config.qos.class_vls[2];
    for (emu::Vl vl = 0; vl < emu::kVlCount; ++vl) {
      if ((lanes >> vl & 1) != 0) lanes_.push_back(vl);
    }
  }

  bool attached() const { return attach_->state() == hca::AttachState::attached; }
  const std::string& reason() const { return attach_->reason(); }
  hca::Attachment& attachment() { return *attach_; }

  // One look at everything; true if there was work.
  bool turn(std::uint64_t host_ns, bool sending) {
    attach_->service(host_ns);
    if (!attached()) return false;
    if (attach_->session() != session_) begin_session();
    bool work = take_in();
    if (sending) work |= put_out();
    attach_->flush();
    return work;
  }

 private:
  static constexpr std::size_t kCookies = 8192;
  static constexpr emu::Cycle kAheadCycles = 15'000;  // about 5 ms

  void begin_session() {
    session_ = attach_->session();
    ++totals_.sessions;
    std::fill(next_out_.begin(), next_out_.end(), 0);
    next_launch_ = attach_->now_cycle();
    if (options_.reservation_mbps > 0) probe();
  }

  void probe() {
    auto slot = attach_->acquire();
    if (!slot) return;
    emu::ProbeBody body{};
    body.connection = 1;
    body.rate_bps = std::uint64_t{options_.reservation_mbps} * 1'000'000;
    body.peak_bps = body.rate_bps;
    std::memcpy(slot->bytes, &body, sizeof body);
    emu::TxDesc desc{};
    desc.buffer = slot->buffer;
    desc.length = sizeof body;
    desc.flits = control_flits_;
    desc.dest = static_cast<emu::NodeId>((attach_->info().node + 1) % next_out_.size());
    desc.vl_in = desc.vl_out = emu::kControlVl;
    desc.traffic_class = emu::TrafficClass::control;
    desc.kind = emu::PacketKind::probe;
    attach_->send(std::span(&desc, 1));
  }

  bool take_in() {
    std::array<hca::Received, 64> packets;
    const std::size_t count = attach_->receive(packets);
    for (std::size_t i = 0; i < count; ++i) check(packets[i]);
    std::array<emu::Injected, 64> injected;
    const std::size_t done = attach_->injected(injected);
    for (std::size_t i = 0; i < done; ++i) {
      const emu::Cycle launch = launch_of_[injected[i].cookie % kCookies];
      const emu::Cycle head = injected[i].tail_cycle + 1 - injected[i].flits;
      if (head < launch) ++totals_.early;
      totals_.launch_wait_cycles += head > launch ? head - launch : 0;
    }
    totals_.injected += done;
    std::array<emu::Answer, 8> answers;
    const std::size_t answered = attach_->answers(answers);
    for (std::size_t i = 0; i < answered; ++i) {
      ++(answers[i].verdict == emu::Verdict::ack ? totals_.acks : totals_.nacks);
      if (answers[i].verdict == emu::Verdict::nack) totals_.nack_router = answers[i].rejected_by;
    }
    return count + done + answered != 0;
  }

  void check(const hca::Received& packet) {
    Stamp stamp;
    std::memcpy(&stamp, packet.bytes, sizeof stamp);
    ++totals_.received;
    totals_.latency_cycles += packet.desc.arrival_cycle - packet.desc.head_cycle;
    const auto* rest = packet.bytes + sizeof stamp;
    const auto pattern = static_cast<std::uint8_t>(stamp.sequence);
    const bool whole = stamp.source == packet.desc.src && stamp.dest == attach_->info().node &&
                       stamp.source < next_in_.size() &&
                       std::all_of(rest, rest + packet.desc.length - sizeof stamp,
                                   [pattern](std::uint8_t byte) { return byte == pattern; });
    if (!whole) {
      ++totals_.corrupt;
    } else {
      if (session_in_[stamp.source] != stamp.session) {
        session_in_[stamp.source] = stamp.session;
        next_in_[stamp.source] = stamp.sequence;  // a new life of the sender
      }
      auto& expected = next_in_[stamp.source];
      if (stamp.sequence < expected) ++totals_.disordered;
      if (stamp.sequence > expected) totals_.lost += stamp.sequence - expected;
      expected = std::max(expected, stamp.sequence + 1);
    }
    attach_->release(packet.desc.buffer);
  }

  bool put_out() {
    const emu::Cycle until = attach_->now_cycle() + kAheadCycles;
    const double mean_gap = options_.flits / options_.load;
    bool work = false;
    std::array<emu::TxDesc, 64> batch;
    std::size_t filled = 0;
    while (next_launch_ < until) {
      auto slot = attach_->acquire();
      if (!slot) {
        ++totals_.blocked;
        break;
      }
      batch[filled++] = fill(*slot);
      next_launch_ += 1 + static_cast<emu::Cycle>(prng_.exponential(mean_gap));
      work = true;
      if (filled == batch.size()) {
        totals_.sent += attach_->send(std::span(batch).first(filled));
        filled = 0;
      }
    }
    totals_.sent += attach_->send(std::span(batch).first(filled));
    return work;
  }

  emu::TxDesc fill(const hca::TxBuffer& slot) {
    const emu::NodeId self = attach_->info().node;
    const auto others = static_cast<std::uint32_t>(next_out_.size() - 1);
    auto dest = static_cast<emu::NodeId>(prng_.below(others));
    if (dest >= self) ++dest;
    const Stamp stamp{next_out_[dest]++, self, dest,
                      static_cast<std::uint32_t>(session_ << 16 | (options_.seed & 0xffff))};
    emu::TxDesc desc{};
    desc.length = static_cast<std::uint16_t>(options_.flits * flit_bytes_);
    std::memcpy(slot.bytes, &stamp, sizeof stamp);
    std::memset(slot.bytes + sizeof stamp, static_cast<int>(stamp.sequence & 0xff),
                desc.length - sizeof stamp);
    desc.cookie = cookie_++;
    desc.launch_cycle = next_launch_;
    launch_of_[desc.cookie % kCookies] = next_launch_;
    desc.buffer = slot.buffer;
    desc.flits = static_cast<std::uint16_t>(options_.flits);
    desc.dest = dest;
    // One lane per destination: packets of a pair never overtake one another.
    desc.vl_in = desc.vl_out = lanes_[dest % lanes_.size()];
    desc.traffic_class = emu::TrafficClass::best_effort;
    return desc;
  }

  const Options& options_;
  std::unique_ptr<hca::Attachment> attach_;
  Totals& totals_;
  emu::Prng prng_;
  std::vector<emu::Vl> lanes_;
  std::vector<std::uint64_t> next_out_, next_in_;
  std::vector<std::uint32_t> session_in_;
  std::vector<emu::Cycle> launch_of_;
  std::uint32_t flit_bytes_;
  std::uint16_t control_flits_;
  emu::Cycle next_launch_ = 0;
  std::uint64_t session_ = 0;
  std::uint64_t cookie_ = 0;
};

void nap(long ns) {
  const timespec time{0, ns};
  (void)::clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

int run(const Options& options, const emu::Config& config) {
  Totals totals;
  std::vector<PeerNode> nodes;
  for (const auto& name : options.nodes) {
    nodes.emplace_back(options, name, config.nodes.size(), config, totals);
  }
  const std::uint64_t start_ns = emu::host_now_ns();
  const auto attach_ns = static_cast<std::uint64_t>(options.attach_s * 1e9);
  const auto send_ns = static_cast<std::uint64_t>(options.seconds * 1e9);
  std::uint64_t ready_ns = 0;
  while (true) {
    const std::uint64_t host_ns = emu::host_now_ns();
    const bool all = std::all_of(nodes.begin(), nodes.end(),
                                 [](const PeerNode& node) { return node.attached(); });
    if (all && ready_ns == 0) ready_ns = host_ns;
    if (!all && (ready_ns == 0 ? host_ns - start_ns > attach_ns : !options.rejoin)) {
      std::fprintf(stderr, "peer: %s\n", nodes.front().reason().c_str());
      return 1;
    }
    // After sending, half a second for what is under way.
    if (ready_ns != 0 && host_ns - ready_ns > send_ns + 500'000'000) break;
    const bool sending = ready_ns != 0 && host_ns - ready_ns < send_ns && options.load > 0;
    bool work = false;
    for (auto& node : nodes) work |= node.turn(host_ns, sending);
    if (!options.poll) nap(work ? 100'000 : 500'000);
  }
  emu::JsonWriter j;
  j.open().field("sent", totals.sent).field("received", totals.received);
  j.field("injected", totals.injected).field("corrupt", totals.corrupt);
  j.field("lost", totals.lost).field("disordered", totals.disordered);
  j.field("early", totals.early).field("blocked", totals.blocked);
  j.field("sessions", totals.sessions).field("acks", totals.acks).field("nacks", totals.nacks);
  j.field("nack_router", totals.nack_router);
  const double received = std::max<double>(1, static_cast<double>(totals.received));
  j.field("latency_cycles", static_cast<double>(totals.latency_cycles) / received);
  j.field("wait_cycles", static_cast<double>(totals.launch_wait_cycles) / received).close();
  std::printf("%s\n", j.text().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  emu::CommandLine line("Nodes without an HCA.", "fabric_peer");
  line.option("--run", options.run_dir).required();
  line.option("--nodes", options.nodes).required().list();
  line.option("--load", options.load);
  line.option("--seconds", options.seconds);
  line.option("--attach-seconds", options.attach_s);
  line.option("--flits", options.flits);
  line.option("--seed", options.seed);
  line.option("--reserve", options.reservation_mbps);
  line.flag("--rejoin", options.rejoin);
  line.flag("--poll", options.poll);
  line.option("--udp", options.udp);
  if (const auto code = line.parse(argc, argv)) return *code;
  const auto config = emu::Config::load(options.run_dir + "/cluster.toml");
  if (!config) {
    std::fprintf(stderr, "peer: %s\n", config.error().message.c_str());
    return 1;
  }
  return run(options, *config);
}
