// The world of the session's model tests: hcads and a fabric over a link that loses, repeats,
// reorders, corrupts and replays datagrams, with partitions and restarts of both sides, all from
// one seed. It checks what arrives as it goes.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "emu/base/prng.h"
#include "emu/wire/session.h"
#include "tests/unit/random_bytes.h"

namespace emu {

inline constexpr std::uint64_t kStepNs = 200'000;
inline constexpr std::size_t kNodes = 3;

struct Weather {
  double loss = 0;
  double repeat = 0;
  double corrupt = 0;
  double replay = 0;               // of any datagram of the past, either direction
  double garbage = 0;              // a stranger's datagram, per step
  std::uint64_t delay_max_ns = 0;  // above the least
  std::uint64_t delay_min_ns = 20'000;
  std::size_t bytes_max_up = 65'507;  // larger datagrams are lost, to the fabric and from it
  std::size_t bytes_max_down = 65'507;
};

struct Datagram {
  std::vector<std::byte> bytes;
  std::size_t node;
  bool to_fabric;
};

// What the sender of one direction wrote in one epoch, and what the receiver made of it.
struct Tag {
  std::uint64_t life;   // of the sending object: a restart makes a new one
  std::uint64_t epoch;  // of the sender
  auto operator<=>(const Tag&) const = default;
};
struct Body {
  Tag tag;
  std::uint64_t index;
};

inline Key key_of(std::uint64_t n) {
  Key key{};
  std::memcpy(key.data(), &n, sizeof n);
  return key;
}

class World {
 public:
  World(std::uint64_t seed, Weather weather) : prng_(seed), weather_(weather) {
    start_fabric();
    for (std::size_t n = 0; n < kNodes; ++n) start_node(n);
  }

  void start_fabric() {
    fabric_ = std::make_unique<Acceptor>(AcceptorOptions{
        .cluster_key = key_of(1),
        .node_names = {"n0", "n1", "n2"},
        .entropy = key_of(prng_()),
        .cycle_ps = 320'000,
        .limits = {.window_frames = 64, .frame_bytes = 1000, .heartbeat_ns = 1'000'000},
        .timing = {}});
    ++fabric_life_;
    for (auto& n : fabric_in_) n = {};
    for (auto& n : fabric_epoch_) n = 0;
  }
  void start_node(std::size_t n) {
    nodes_[n] = std::make_unique<Initiator>(InitiatorOptions{
        .cluster_key = key_of(n == wrong_key_ ? 2 : 1),
        .node_name = fmt::format("n{}", n),
        .entropy = key_of(prng_()),
        .limits = {.window_frames = 64, .frame_bytes = 800, .heartbeat_ns = 50'000'000},
        .timing = {}});
    ++node_life_[n];
    node_in_[n] = {};
    node_epoch_[n] = 0;
  }
  void use_wrong_key(std::size_t n) {
    wrong_key_ = n;
    start_node(n);
  }

  void run(std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps && !testing::Test::HasFailure(); ++i) step();
  }
  void step() {
    now_ += kStepNs;
    arrive();
    fabric_->service(now_);
    for (std::size_t n = 0; n < kNodes; ++n) {
      look_at_epochs(n);
      read(n);
      if (writing_) write(n);
      while (true) {
        const Train train = nodes_[n]->transmit(now_);
        if (train.empty()) break;
        post(n, true, train);
      }
      while (true) {
        const Train train = fabric_->transmit(static_cast<NodeId>(n), now_, now_ / 320);
        if (train.empty()) break;
        post(n, false, train);
      }
    }
    if (prng_.uniform() < weather_.garbage) throw_garbage();
  }

  void set_weather(Weather weather) { weather_ = weather; }
  void partition(std::size_t n, bool on) { cut_[n] = on; }
  void partition_down(std::size_t n, bool on) { cut_down_[n] = on; }
  void sleep(std::uint64_t ns) { now_ += ns; }
  void stop_writing() { writing_ = false; }
  void stop_reading(bool on) { reading_ = !on; }

  Acceptor& fabric() { return *fabric_; }
  Initiator& node(std::size_t n) { return *nodes_[n]; }
  std::uint64_t now() const { return now_; }
  Prng& prng() { return prng_; }

  // Everything of the present epoch has arrived, both ways.
  bool settled(std::size_t n) {
    if (!nodes_[n]->is_open() || !fabric_->attached(static_cast<NodeId>(n))) return false;
    Channel& up = nodes_[n]->channel();
    Channel& down = fabric_->channel(static_cast<NodeId>(n));
    return up.out().records_sent() == down.in().records_delivered() &&
           down.out().records_sent() == up.in().records_delivered();
  }
  std::uint64_t delivered_in_all() const { return delivered_; }
  std::uint64_t exact_reports() const { return exact_; }
  std::uint64_t vague_reports() const { return vague_; }

 private:
  struct Reader {
    std::optional<Tag> tag;
    std::uint64_t next = 0;
  };

  void post(std::size_t n, bool to_fabric, const Train& train) {
    ASSERT_LE(train.bytes.size(), kTrainBytesMax);
    ASSERT_LE(train.segment * (kTrainSegmentsMax - 1), train.bytes.size() + 65'507);
    for (std::size_t at = 0; at < train.bytes.size(); at += train.segment) {
      const auto piece = train.bytes.subspan(at, std::min(train.segment, train.bytes.size() - at));
      Datagram datagram{{piece.begin(), piece.end()}, n, to_fabric};
      if (piece.size() > (to_fabric ? weather_.bytes_max_up : weather_.bytes_max_down)) continue;
      if (cut_[n] || (cut_down_[n] && !to_fabric) || prng_.uniform() < weather_.loss) continue;
      if (past_.size() < 5000) past_.push_back(datagram);
      const int copies = prng_.uniform() < weather_.repeat ? 2 : 1;
      if (copies == 2) put_on_way(datagram);
      if (prng_.uniform() < weather_.corrupt) put_on_way(corrupted(datagram));
      put_on_way(std::move(datagram));
      if (prng_.uniform() < weather_.replay) {
        put_on_way(past_[prng_.below(static_cast<std::uint32_t>(past_.size()))]);
      }
    }
  }
  void put_on_way(Datagram datagram) {
    const auto spread = static_cast<std::uint32_t>(weather_.delay_max_ns + 1);
    way_.emplace(now_ + weather_.delay_min_ns + prng_.below(spread), std::move(datagram));
  }
  Datagram corrupted(Datagram datagram) {
    auto& bytes = datagram.bytes;
    const auto at = prng_.below(static_cast<std::uint32_t>(bytes.size()));
    if (prng_.below(3) == 0) {
      bytes.resize(at);
    } else {
      bytes[at] ^= static_cast<std::byte>(1 << prng_.below(8));
    }
    return datagram;
  }
  void throw_garbage() {
    Datagram datagram{{}, prng_.below(kNodes), prng_.below(2) == 0};
    datagram.bytes.resize(prng_.below(2000));
    test::fill_at_random(prng_, datagram.bytes);
    if (datagram.bytes.size() > 8 && prng_.below(2) == 0) {
      const std::uint32_t magic = kFrameMagic;
      std::memcpy(datagram.bytes.data(), &magic, sizeof magic);
      datagram.bytes[4] = std::byte{kFrameVersion};
      datagram.bytes[5] = static_cast<std::byte>(prng_.below(7));
      datagram.bytes[6] = datagram.bytes[7] = std::byte{0};
    }
    way_.emplace(now_, std::move(datagram));
  }
  void arrive() {
    while (!way_.empty() && way_.begin()->first <= now_) {
      const Datagram datagram = std::move(way_.begin()->second);
      way_.erase(way_.begin());
      if (datagram.to_fabric) {
        const Arrival arrival = fabric_->receive(datagram.bytes, now_);
        if (!arrival.reply.empty()) {
          ASSERT_LE(arrival.reply.size(), datagram.bytes.size()) << "amplifies";
          post(datagram.node, false, Train{arrival.reply, arrival.reply.size()});
        }
      } else {
        nodes_[datagram.node]->receive(datagram.bytes, now_);
      }
    }
  }

  void write(std::size_t n) {
    for (int i = 0; i < 3; ++i) {
      if (nodes_[n]->epoch().number != 0) {
        Channel& channel = nodes_[n]->channel();
        put(channel, Tag{node_life_[n], nodes_[n]->epoch().number});
      }
      const auto id = static_cast<NodeId>(n);
      if (fabric_->attached(id)) {
        put(fabric_->channel(id), Tag{fabric_life_, fabric_->epoch(id).number});
      }
    }
  }
  // The next call's bytes take the place of these.
  std::span<const std::byte> filler(const Body& body, std::size_t size) {
    std::memset(filler_.data(), static_cast<int>(body.index * 7 & 0xff), size);
    return std::span(filler_).first(size);
  }
  void put(Channel& channel, Tag tag) {
    const Body body{tag, channel.out().records_sent()};
    const std::size_t size = prng_.below(4) == 0 ? prng_.below(4000) : prng_.below(100);
    channel.send(RecordKind::tx, std::as_bytes(std::span(&body, 1)), filler(body, size));
  }
  void read(std::size_t n) {
    if (!reading_) return;
    while (const auto record = nodes_[n]->front()) {
      check(*record, node_in_[n], taken_down_[n]);
      nodes_[n]->pop();
    }
    const auto id = static_cast<NodeId>(n);
    if (!fabric_->attached(id)) return;
    Channel& channel = fabric_->channel(id);
    while (const auto record = channel.front()) {
      check(*record, fabric_in_[n], taken_up_[n]);
      channel.pop();
    }
  }
  void check(const Record& record, Reader& reader, std::map<Tag, std::uint64_t>& taken) {
    Body body;
    ASSERT_GE(record.body.size(), sizeof body);
    std::memcpy(&body, record.body.data(), sizeof body);
    if (!reader.tag) reader.tag = body.tag;
    ASSERT_EQ(*reader.tag, body.tag) << "a record of another epoch";
    ASSERT_EQ(reader.next, body.index) << "lost, twice or out of order";
    const auto rest = record.body.subspan(sizeof body);
    ASSERT_LE(rest.size(), filler_.size());
    const std::span<const std::byte> sent = filler(body, rest.size());
    ASSERT_TRUE(rest.empty() || std::memcmp(rest.data(), sent.data(), sent.size()) == 0)
        << "corrupt";
    taken[*reader.tag] = ++reader.next;
    ++delivered_;
  }
  // A new epoch on one side: what it says about the last one must be true.
  void look_at_epochs(std::size_t n) {
    const Epoch& up = nodes_[n]->epoch();
    if (up.number != node_epoch_[n]) {
      check_report(up, taken_up_[n][Tag{node_life_[n], node_epoch_[n]}], node_in_[n]);
      node_epoch_[n] = up.number;
      node_in_[n] = {};
    }
    const Epoch& down = fabric_->epoch(static_cast<NodeId>(n));
    if (down.number != fabric_epoch_[n]) {
      check_report(down, taken_down_[n][Tag{fabric_life_, fabric_epoch_[n]}], fabric_in_[n]);
      fabric_epoch_[n] = down.number;
      fabric_in_[n] = {};
    }
  }
  // `taken`: how many of the epoch's records the other side has really read.
  void check_report(const Epoch& epoch, std::uint64_t taken, const Reader& reader) {
    ASSERT_LE(epoch.taken_at_least, taken);
    ASSERT_LE(taken, epoch.taken_at_most);
    ASSERT_LE(epoch.taken_at_most, epoch.sent_before);
    ASSERT_EQ(epoch.delivered_before, reader.next);
    if (epoch.sent_before == 0) return;
    ++(epoch.taken_at_least == epoch.taken_at_most ? exact_ : vague_);
  }

  Prng prng_;
  Weather weather_;
  std::uint64_t now_ = 1'000'000'000;
  bool writing_ = true;
  bool reading_ = true;
  std::size_t wrong_key_ = kNodes;
  std::unique_ptr<Acceptor> fabric_;
  std::array<std::unique_ptr<Initiator>, kNodes> nodes_;
  std::uint64_t fabric_life_ = 0;
  std::array<std::uint64_t, kNodes> node_life_{};
  std::array<std::uint64_t, kNodes> node_epoch_{};
  std::array<std::uint64_t, kNodes> fabric_epoch_{};
  std::array<Reader, kNodes> node_in_;
  std::array<Reader, kNodes> fabric_in_;
  std::array<bool, kNodes> cut_{};
  std::array<bool, kNodes> cut_down_{};
  std::array<std::map<Tag, std::uint64_t>, kNodes> taken_up_;
  std::array<std::map<Tag, std::uint64_t>, kNodes> taken_down_;
  std::uint64_t delivered_ = 0;
  std::uint64_t exact_ = 0;
  std::uint64_t vague_ = 0;
  std::multimap<std::uint64_t, Datagram> way_;
  std::vector<Datagram> past_;
  std::array<std::byte, 4000> filler_{};
};

}  // namespace emu
