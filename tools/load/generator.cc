#include "tools/load/generator.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "emu/base/complain.h"
#include "tools/load/nap.h"

namespace tools {
namespace {

constexpr int kFlowShift = 40;  // of a work request's number: the flow, then receive bit and count
constexpr std::uint64_t kReceiveBit = std::uint64_t{1} << 32;
constexpr int kPollMax = 32768;
constexpr int kCqEntries = 32768;
// All there can be of the three kinds: every receive, and every send if they fail.
static_assert(3 * (Flow::kSendsMost + Flow::kReceives) <= kPollMax && kPollMax <= kCqEntries);

// Tells the messages of this run from late ones of another run that had the same queue pair number.
std::uint64_t fresh_token() {
  std::uint64_t token = 0;
  return ::getrandom(&token, sizeof token, 0) == sizeof token ? token : 1;
}

}  // namespace

void say_load(const std::string& line) { emu::complain("flitnet-load", line, 0); }

emu::Result<void> Generator::open() {
  auto device = Device::open(options_.device);
  if (!device) return std::unexpected(device.error());
  device_.emplace(*std::move(device));
  auto cq = CompletionQueue::create(*device_, kCqEntries);
  if (!cq) return std::unexpected(cq.error());
  cq_.emplace(*std::move(cq));
  for (FlowOptions& flow : options_.flows) {
    flow.number = static_cast<std::uint16_t>(flows_.size());
    flows_.emplace_back(flow, options_.to, fresh_token());
    auto checked = flows_.back().check(*device_);
    bad_usage_ = !checked;
    if (!checked) return checked;
    const auto wr_base = static_cast<std::uint64_t>(flow.number) << kFlowShift;
    if (auto opened = flows_.back().open(*device_, *cq_, wr_base); !opened) return opened;
  }
  auto rendezvous = Rendezvous::listen(options_.rendezvous, "load", options_.node);
  if (!rendezvous) return std::unexpected(rendezvous.error());
  rendezvous_.emplace(*std::move(rendezvous));
  if (!options_.metrics_run.empty()) open_metrics();
  opened_ = std::chrono::steady_clock::now();
  for (const std::string& node : options_.from) peer_of(node).in = PeerState::expected;
  for (const std::string& node : options_.to) ask(peer_of(node));
  return {};
}

Generator::Peer& Generator::peer_of(const std::string& node) {
  const auto found =
      std::ranges::find_if(peers_, [&node](const Peer& peer) { return peer.node == node; });
  return found != peers_.end() ? *found : peers_.emplace_back(Peer{.node = node});
}

Flow* Generator::flow_of(const std::string& kind) {
  const auto found = std::ranges::find_if(
      flows_, [&kind](const Flow& flow) { return flow.options().kind == kind; });
  return found == flows_.end() ? nullptr : &*found;
}

void Generator::ask(Peer& peer) {
  peer.destination = true;
  peer.call = rendezvous_->call(peer.node);
  for (const Flow& flow : flows_) {
    if (!flow.goes_to(peer.node)) continue;
    ++peer.questions;
    rendezvous_->send(peer.call, fmt::format("ask kind={}", flow.options().kind));
  }
}

void Generator::on_line(Rendezvous::PeerIndex index, const Words& words) {
  const std::string node = rendezvous_->name(index);
  if (words.verb() == "ask") {
    on_ask(index, words);
  } else if (words.verb() == "address") {
    on_address(node, words);
  } else if (words.verb() == "none") {
    ++peer_of(node).answers;
  } else if (words.verb() == "end") {
    Flow* flow = flow_of(words.text("kind"));
    if (flow != nullptr) flow->end_source(node, words.number("sent").value_or(0));
    if (words.has("last")) peer_of(node).in = PeerState::ended;
  }
}

void Generator::on_ask(Rendezvous::PeerIndex index, const Words& words) {
  const std::string kind = words.text("kind");
  constexpr std::size_t kPeersMax = 1024;
  Flow* flow = flow_of(kind);
  if (flow == nullptr || peers_.size() >= kPeersMax) {
    rendezvous_->send(index, fmt::format("none kind={}", kind));
    return;
  }
  const std::string node = rendezvous_->name(index);
  peer_of(node).in = PeerState::asked;
  const std::uint16_t source = flow->add_source(node);
  rendezvous_->send(index, fmt::format("address kind={} {} source={} token={}", kind,
                                       words_of(flow->endpoint()), source, flow->token()));
}

void Generator::on_address(const std::string& node, const Words& words) {
  Flow* flow = flow_of(words.text("kind"));
  Peer& peer = peer_of(node);
  const auto remote = endpoint_of(words);
  const auto source = words.number("source", 0xffff);
  const auto token = words.number("token");
  if (flow == nullptr || !peer.destination || !remote || !source || !token) return;
  const auto added =
      flow->add_destination(*device_, node, *remote, static_cast<std::uint16_t>(*source), *token);
  if (!added) {
    well_ = false;
    say_load(added.error().message);
  }
  ++peer.answers;
}

void Generator::on_gone(Rendezvous::PeerIndex index) {
  const std::string node = rendezvous_->name(index);
  if (node.empty()) return;
  Peer& peer = peer_of(node);
  // Two conversations may lead to a peer: ours carries what we send, its own what it sends.
  const bool ours = peer.destination && peer.call == index;
  if (ours && !peer.out_over) {
    peer.out_over = true;
    for (Flow& flow : flows_) flow.drop_destination(node);
    well_ = false;
    say_load(fmt::format("{} is gone, nothing more goes to it", node));
  } else if (!ours && peer.in == PeerState::asked) {
    peer.in = PeerState::gone;
    well_ = false;
  }
}

void Generator::start_when_ready() {
  if (started_) return;
  const bool ready = std::ranges::all_of(peers_, [this](const Peer& peer) {
    return !peer.destination || peer.out_over || peer.answers >= peer.questions;
  });
  if (!ready && !waiting_over_) return;
  const auto wanted = begin_.when(true);
  if (!wanted) return;
  started_ = true;
  constexpr emu::EmuNs kLeadNs = 20'000'000;
  const emu::EmuNs begin = std::max(device_->now() + kLeadNs, *wanted);
  const auto length = static_cast<emu::EmuNs>(std::max(options_.seconds, 0.0) * 1e9);
  for (Flow& flow : flows_) flow.start(begin, begin + length);
}

void Generator::give_up_waiting() {
  const auto waited = std::chrono::steady_clock::now() - opened_;
  if (waiting_over_ || waited < std::chrono::seconds(options_.wait_seconds)) return;
  waiting_over_ = true;
  for (Peer& peer : peers_) {
    const bool silent = peer.destination && peer.answers < peer.questions && !peer.out_over;
    if (!silent && peer.in != PeerState::expected) continue;
    well_ = false;
    say_load(fmt::format("{} did not come within {} s", peer.node, options_.wait_seconds));
    if (silent) peer.out_over = true;
    if (peer.in == PeerState::expected) peer.in = PeerState::gone;
  }
}

void Generator::say_ends() {
  const bool sent = started_ && std::ranges::all_of(flows_, &Flow::sending_over);
  if (ends_said_ || !sent) return;
  ends_said_ = true;
  for (Peer& peer : peers_) {
    if (!peer.destination || peer.out_over) continue;
    peer.out_over = true;
    std::size_t left = peer.questions;
    for (const Flow& flow : flows_) {
      if (!flow.goes_to(peer.node)) continue;
      rendezvous_->send(peer.call,
                        fmt::format("end kind={} sent={}{}", flow.options().kind,
                                    flow.sent_to(peer.node), --left == 0 ? " last=1" : ""));
    }
  }
}

bool Generator::over() const {
  if (!ends_said_) return false;
  const bool heard = !options_.sink || !peers_.empty() || waiting_over_;
  const bool all_ended = heard && std::ranges::all_of(peers_, [](const Peer& peer) {
                           return peer.in == PeerState::ended || peer.in == PeerState::gone;
                         });
  if (!all_ended) return false;
  // What was sent may still be on its way; what is not here after this long is lost.
  constexpr auto kGrace = std::chrono::seconds(2);
  return std::ranges::all_of(flows_, &Flow::sources_whole) ||
         (ends_seen_ && std::chrono::steady_clock::now() - ended_ > kGrace);
}

emu::Result<void> Generator::poll() {
  const int polled = cq_->poll(*device_, kPollMax, [this](const Completion& done) {
    const auto index = static_cast<std::size_t>(done.wr_id >> kFlowShift);
    if (index < flows_.size()) flows_[index].complete(done, (done.wr_id & kReceiveBit) != 0);
  });
  if (polled < 0 || device_->lost()) return emu::fail("{}: the device is gone", device_->name());
  return {};
}

emu::Result<void> Generator::tick() {
  // Without launch times the post is the launch, so the naps have to be short.
  const auto nap = device_->has_launch() ? nap_ : std::chrono::microseconds(500);
  rendezvous_->wait(nap, {.line = [this](auto index, const Words& words) { on_line(index, words); },
                          .gone = [this](auto index) { on_gone(index); }});
  start_when_ready();
  if (auto polled = poll(); !polled) return polled;
  for (Flow& flow : flows_) {
    if (auto ticked = flow.tick(*device_, device_->now()); !ticked) return ticked;
  }
  double used = 0;
  for (const Flow& flow : flows_) used = std::max(used, flow.used());
  nap_ = next_nap(nap_, std::chrono::microseconds(options_.tick_ms * 1000), used);
  say_ends();
  give_up_waiting();
  const bool ended = std::ranges::none_of(peers_, [](const Peer& peer) {
    return peer.in == PeerState::expected || peer.in == PeerState::asked;
  });
  if (ended && !ends_seen_) ended_ = std::chrono::steady_clock::now();
  ends_seen_ = ended;
  if (page_) publish();
  return {};
}

emu::Result<void> Generator::run(const volatile int* stop) {
  emu::Result<void> result;
  while (result && !over() && *stop == 0) result = tick();
  if (result && !over() && started_) {
    waiting_over_ = true;
    for (Flow& flow : flows_) flow.stop();
    // What is posted leaves within ahead_ms of emulated time; two seconds cover a slow host, and
    // who stops us waits a little longer.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (result && !over() && std::chrono::steady_clock::now() < end) result = tick();
  }
  for (Flow& flow : flows_) flow.settle();
  if (page_) publish();
  rendezvous_->flush(std::chrono::milliseconds(500));
  return result;
}

}  // namespace tools
