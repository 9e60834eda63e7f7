#include "tools/replay/replayer.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "emu/base/complain.h"

namespace tools {
namespace {

constexpr std::uint64_t kSinkBit = std::uint64_t{1} << 63;
constexpr int kIndexShift = 8;              // below it the number of a receive buffer
constexpr int kPollMax = 4096;              // completions of one turn
constexpr std::size_t kCqPerStream = 64;    // every buffer of a sink, every piece of a sender
constexpr std::size_t kUnplannedMax = 512;  // streams of a bare sink, 1.2 MB each

std::uint64_t wr_base(std::size_t index, bool sink) {
  return (sink ? kSinkBit : 0) | static_cast<std::uint64_t>(index) << kIndexShift;
}
std::size_t index_of(std::uint64_t wr_id) {
  return static_cast<std::size_t>((wr_id & ~kSinkBit) >> kIndexShift);
}

}  // namespace

void say(const std::string& line) { emu::complain("flitnet-replay", line, 0); }

emu::Result<void> Replayer::open() {
  auto device = Device::open(options_.device);
  if (!device) return std::unexpected(device.error());
  device_.emplace(*std::move(device));
  auto cq = CompletionQueue::create(*device_, static_cast<int>(streams_max() * kCqPerStream));
  if (!cq) return std::unexpected(cq.error());
  cq_.emplace(*std::move(cq));
  clips_ = std::make_unique<ClipStore>(*device_);
  bad_input_ = true;
  if (auto opened = open_streams(); !opened) return opened;
  bad_input_ = false;
  auto rendezvous = Rendezvous::listen(options_.rendezvous, "replay", options_.node);
  if (!rendezvous) return std::unexpected(rendezvous.error());
  rendezvous_.emplace(*std::move(rendezvous));
  if (!options_.metrics_run.empty()) open_metrics();
  started_ = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < senders_.size(); ++i) offer(i);
  return {};
}

// Every piece outstanding and every receive buffer may complete between two looks, however far
// apart those are: a queue that overruns takes all streams with it.
std::size_t Replayer::streams_max() const {
  std::size_t streams = options_.sink ? kUnplannedMax : 1;
  for (const StreamPlan& plan : options_.streams) {
    if (plan.from == options_.node || plan.to == options_.node) ++streams;
  }
  return streams;
}

emu::Result<void> Replayer::open_streams() {
  for (const StreamPlan& plan : options_.streams) {
    const bool out = plan.from == options_.node;
    if (!out && plan.to != options_.node) continue;
    const auto clip = clips_->get(plan.clip, options_.text);
    if (!clip) return std::unexpected(clip.error());
    if (out) {
      senders_.emplace_back(plan, *clip, options_.send);
      const auto opened = senders_.back().open(*device_, *cq_, wr_base(senders_.size() - 1, false));
      if (!opened) {
        bad_input_ = false;
        return opened;
      }
    } else {
      sinks_.emplace_back(plan, *clip);
    }
  }
  sink_peers_.resize(sinks_.size());
  end_said_.resize(senders_.size());
  if (senders_.empty() && sinks_.empty() && !options_.sink) {
    return emu::fail("no stream of the plan begins or ends at {}", options_.node);
  }
  return {};
}

void Replayer::offer(std::size_t index) {
  const Sender& sender = senders_[index];
  const auto peer = rendezvous_->call(sender.plan().to);
  sender_peers_.push_back(peer);
  rendezvous_->send(peer, fmt::format("offer stream={} frame={} message_max={} {}",
                                      sender.plan().name, sender.plan().frame,
                                      sender.message_bytes_max(), words_of(sender.endpoint())));
}

Sink* Replayer::sink_of(const std::string& stream) {
  const auto found = std::ranges::find_if(
      sinks_, [&stream](const Sink& sink) { return sink.plan().name == stream; });
  return found == sinks_.end() ? nullptr : &*found;
}

Sender* Replayer::sender_of(const std::string& stream) {
  const auto found = std::ranges::find_if(
      senders_, [&stream](const Sender& sender) { return sender.plan().name == stream; });
  return found == senders_.end() ? nullptr : &*found;
}

void Replayer::on_line(Rendezvous::PeerIndex peer, const Words& words) {
  const std::string stream = words.text("stream");
  if (words.verb() == "offer") return on_offer(peer, words);
  if (words.verb() == "accept") return on_accept(words);
  if (words.verb() == "turn") {
    turns_.take(stream);
    return ask_in_turn();
  }
  if (words.verb() == "refuse") {
    Sender* sender = sender_of(stream);
    if (sender == nullptr || sender->over()) return;
    say(fmt::format("{}: {} does not take it: {}", stream, sender->plan().to, words.text("why")));
    sender->fail("not taken");
    return;
  }
  Sink* sink = sink_of(stream);
  if (sink == nullptr || sink->over()) return;
  if (words.verb() == "end") {
    sink->end(words.number("frames").value_or(0));
  } else if (words.verb() == "reject") {
    const int router = static_cast<int>(words.number("by", 1 << 20).value_or(1)) - 2;
    sink->set_rejected(router, "rejected");
  } else if (words.verb() == "fail") {
    sink->set_state(SinkState::gone, "its sender failed");
  }
}

void Replayer::on_offer(Rendezvous::PeerIndex peer, const Words& words) {
  const std::string name = words.text("stream");
  const auto remote = endpoint_of(words);
  constexpr std::uint32_t kMessageMax = 1U << 20;
  const auto message_max = words.number("message_max", kMessageMax);
  Sink* sink = sink_of(name);
  const bool room = senders_.size() + sinks_.size() < streams_max();
  if (sink == nullptr && options_.sink && room && remote && message_max) {
    StreamPlan plan{.name = name,
                    .from = rendezvous_->name(peer),
                    .to = options_.node,
                    .frame = static_cast<std::uint32_t>(words.number("frame", ~0U).value_or(0))};
    sink = &sinks_.emplace_back(std::move(plan), nullptr);
    sink_peers_.push_back(peer);
    if (page_) open_metrics();
  }
  std::string why;
  if (sink == nullptr || !remote || !message_max) {
    why = !room ? "no_room" : sink == nullptr ? "unknown_stream" : "bad_offer";
  } else if (sink->state() == SinkState::open || sink->state() == SinkState::ending) {
    why = "stream_is_running";
  } else {
    const auto index = static_cast<std::size_t>(
        std::distance(sinks_.begin(),
                      std::ranges::find_if(sinks_, [sink](const Sink& s) { return &s == sink; })));
    sink_peers_[index] = peer;
    const auto opened = sink->open(*device_, *cq_, wr_base(index, true), *remote, options_.send.sl,
                                   static_cast<std::uint32_t>(*message_max));
    if (opened) {
      rendezvous_->send(peer, fmt::format("accept stream={} {}", name, words_of(sink->endpoint())));
      return;
    }
    say(fmt::format("{}: {}", name, opened.error().message));
    sink->set_state(SinkState::failed, opened.error().message);
    why = "cannot_open";
  }
  rendezvous_->send(peer, fmt::format("refuse stream={} why={}", name, why));
}

void Replayer::on_accept(const Words& words) {
  Sender* sender = sender_of(words.text("stream"));
  const auto remote = endpoint_of(words);
  if (sender == nullptr || !remote || sender->state() != SendState::waiting) return;
  if (auto up = sender->connect(*device_, *remote); !up) {
    say(fmt::format("{}: {}", sender->plan().name, up.error().message));
    sender->fail(up.error().message);
  }
  turns_.moved();
  ask_in_turn();
}

void Replayer::ask(Sender& sender) {
  sender.ask(*device_);
  if (sender.state() != SendState::rejected) return;
  const std::string& name = sender.plan().name;
  say(fmt::format("{}: {}", name, sender.why()));
  rendezvous_->send(rendezvous_->call(sender.plan().to),
                    fmt::format("reject stream={} by={}", name, sender.rejected_by() + 2));
}

void Replayer::ask_in_turn() {
  const bool in_turn = options_.send.admission && !turns_.stuck();
  while (const StreamPlan* plan = turns_.now()) {
    if (plan->from != options_.node) {
      const auto peer = rendezvous_->call(plan->from);
      if (rendezvous_->gone(peer)) {
        turns_.next();
        continue;
      }
      rendezvous_->send(peer, "turn stream=" + plan->name);
      turns_.give_away();
      break;
    }
    Sender* sender = sender_of(plan->name);
    if (sender != nullptr && sender->state() == SendState::waiting) break;
    if (sender != nullptr && sender->state() == SendState::asking) ask(*sender);
    turns_.next();
  }
  if (in_turn) return;
  for (Sender& sender : senders_) {
    if (sender.state() == SendState::asking) ask(sender);
  }
}

void Replayer::begin_streams() {
  const auto begin = begin_.when(std::ranges::none_of(
      senders_, [](const Sender& sender) { return sender.state() < SendState::connected; }));
  if (!begin) return;
  for (Sender& sender : senders_) {
    if (sender.state() != SendState::connected) continue;
    // A first frame that is due at once would be late before it is posted.
    constexpr emu::EmuNs kLeadNs = 50'000'000;
    const FrameRate& rate = sender.plan().rate;
    const double frames = options_.seconds * rate.frames / rate.seconds;
    sender.start(std::max(device_->now() + kLeadNs, *begin),
                 static_cast<std::uint64_t>(std::max(frames, 0.0)));
  }
}

void Replayer::on_gone(Rendezvous::PeerIndex peer) {
  std::size_t hit = 0;
  for (std::size_t i = 0; i < sinks_.size(); ++i) {
    // One that has said how many frames there are has said everything.
    if (sink_peers_[i] == peer && sinks_[i].state() == SinkState::open) {
      sinks_[i].set_state(SinkState::gone, "its sender died");
      ++hit;
    }
  }
  for (std::size_t i = 0; i < senders_.size(); ++i) {
    if (sender_peers_[i] == peer && !senders_[i].over()) {
      senders_[i].fail("its sink died");
      ++hit;
    }
  }
  if (hit > 0) say(fmt::format("{} is gone, {} streams with it", rendezvous_->name(peer), hit));
}

emu::Result<void> Replayer::poll() {
  const int polled = cq_->poll(*device_, kPollMax, [this](const Completion& done) {
    const std::size_t index = index_of(done.wr_id);
    if ((done.wr_id & kSinkBit) != 0) {
      if (index >= sinks_.size()) return;
      Sink& sink = sinks_[index];
      const bool was_over = sink.over();
      // The low byte is the buffer; the sink knows its base.
      sink.complete(*device_, done);
      if (!was_over && sink.over()) say(fmt::format("{}: {}", sink.plan().name, sink.why()));
    } else if (index < senders_.size()) {
      Sender& sender = senders_[index];
      const bool was_over = sender.over();
      sender.complete(done);
      if (!was_over && sender.over()) say(fmt::format("{}: {}", sender.plan().name, sender.why()));
    }
  });
  all_polled_ = polled < kPollMax;
  if (polled < 0 || device_->lost()) return emu::fail("{}: the device is gone", device_->name());
  return {};
}

void Replayer::post_all() {
  for (Sender& sender : senders_) {
    if (auto ticked = sender.tick(*device_, device_->now()); !ticked) {
      say(fmt::format("{}: {}", sender.plan().name, ticked.error().message));
      sender.fail(ticked.error().message);
    }
  }
}

void Replayer::say_ends() {
  for (std::size_t i = 0; i < senders_.size(); ++i) {
    const Sender& sender = senders_[i];
    if (end_said_[i] || !sender.over()) continue;
    end_said_[i] = true;
    const auto& name = sender.plan().name;
    if (sender.state() == SendState::done) {
      rendezvous_->send(sender_peers_[i],
                        fmt::format("end stream={} frames={}", name, sender.counts().frames));
    } else if (sender.state() == SendState::failed) {
      rendezvous_->send(sender_peers_[i], fmt::format("fail stream={}", name));
    }
  }
}

// A sender says the end when all it sent is in our queue. What is not whole then never will be:
// without an end to the wait, one damaged header would keep the sink for ever.
void Replayer::settle_sinks() {
  const auto now = std::chrono::steady_clock::now();
  sinks_ending_.resize(sinks_.size());
  for (std::size_t i = 0; i < sinks_.size(); ++i) {
    Sink& sink = sinks_[i];
    if (sink.state() != SinkState::ending) sinks_ending_[i] = {};
    if (sink.state() != SinkState::ending || sink.settle()) continue;
    if (sinks_ending_[i] == WallTime{}) sinks_ending_[i] = now;
    const auto waited = now - sinks_ending_[i];
    if (!all_polled_ || waited < std::chrono::milliseconds(options_.grace_ms)) continue;
    sink.give_up();
    say(fmt::format("{}: {} frames did not arrive whole", sink.plan().name, sink.counts().lost));
  }
}

void Replayer::give_up_waiting() {
  const auto waited = std::chrono::steady_clock::now() - started_;
  if (waiting_over_ || waited < std::chrono::seconds(options_.wait_seconds)) return;
  waiting_over_ = true;
  const std::string text = fmt::format("did not come within {} s", options_.wait_seconds);
  for (Sender& sender : senders_) {
    if (sender.state() != SendState::waiting) continue;
    say(fmt::format("{}: {} {}", sender.plan().name, sender.plan().to, text));
    sender.fail(sender.plan().to + " " + text);
  }
  for (Sink& sink : sinks_) {
    if (sink.state() != SinkState::expected) continue;
    say(fmt::format("{}: {} {}", sink.plan().name, sink.plan().from, text));
    sink.set_state(SinkState::absent, sink.plan().from + " " + text);
  }
}

bool Replayer::over() const {
  const bool any = !senders_.empty() || !sinks_.empty();
  const bool idle = any || waiting_over_;  // a bare sink waits for its first stream
  return idle && std::ranges::all_of(senders_, &Sender::over) &&
         std::ranges::all_of(sinks_, &Sink::over);
}

std::chrono::nanoseconds Replayer::nap() const {
  std::chrono::nanoseconds nap = std::chrono::milliseconds(options_.tick_ms);
  if (device_->has_launch()) return nap;
  // Pacing in software: wake when the next frame is due.
  const emu::EmuNs now = device_->now();
  for (const Sender& sender : senders_) {
    const emu::EmuNs due = sender.next_post_ns(*device_);
    const auto left = due > now ? std::chrono::nanoseconds(due - now) : std::chrono::nanoseconds(0);
    if (due != ~emu::EmuNs{0}) nap = std::min(nap, left);
  }
  return nap;
}

emu::Result<void> Replayer::tick() {
  // Streams that run already have frames due while others are opened and admitted.
  const auto serve_line = [this](auto peer, const Words& words) {
    on_line(peer, words);
    post_all();
  };
  rendezvous_->wait(nap(), {.line = serve_line, .gone = [this](auto peer) { on_gone(peer); }});
  if (auto polled = poll(); !polled) return polled;
  ask_in_turn();
  begin_streams();
  post_all();
  say_ends();
  settle_sinks();
  give_up_waiting();
  if (page_) publish();
  return {};
}

emu::Result<void> Replayer::run(const volatile int* stop) {
  emu::Result<void> result;
  while (result && !over() && *stop == 0) result = tick();
  if (result && !over()) {
    for (Sender& sender : senders_) sender.stop();
    // What is posted is due within ahead_ms of emulated time; two seconds cover a slow host, and
    // who stops us waits a little longer.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (result && !over() && std::chrono::steady_clock::now() < end) result = tick();
    say_ends();  // a stream that had not begun is over without a turn
  }
  for (Sink& sink : sinks_) {
    if (sink.state() == SinkState::ending) sink.give_up();
  }
  if (page_) publish();
  rendezvous_->flush(std::chrono::milliseconds(500));
  return result;
}

bool Replayer::all_well() const {
  const bool senders = std::ranges::all_of(senders_, [](const Sender& sender) {
    return sender.state() == SendState::done || sender.state() == SendState::rejected;
  });
  const bool sinks = std::ranges::all_of(sinks_, [](const Sink& sink) {
    return sink.state() == SinkState::done || sink.state() == SinkState::rejected;
  });
  return senders && sinks;
}

}  // namespace tools
