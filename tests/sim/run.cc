#include "tests/sim/run.h"

#include <algorithm>

#include "emu/base/check.h"

namespace sim {

namespace {

constexpr emu::EmuNs kLeadNs = 100'000'000;  // from admission to the first frame: time to post
constexpr emu::EmuNs kPatienceNs = 1'000'000'000;  // beyond the end, and as long again as the run
constexpr double kControlGapNs = 33.3e6 / 10;      // ten packets per 33.3 ms (PAPERS section 4)
constexpr std::uint8_t kBestEffortSl = 0;
constexpr std::uint8_t kControlSl = 15;
constexpr std::uint32_t kControlFlits = 10;

template <class T>
void connect_all(std::vector<std::unique_ptr<T>>& flows) {
  std::vector<std::uint32_t> numbers;
  for (const auto& flow : flows) numbers.push_back(flow->qpn());
  for (const auto& flow : flows) flow->connect(numbers);
}

std::uint64_t lost_of(const std::vector<std::unique_ptr<Datagrams>>& flows) {
  std::uint64_t lost = 0;
  for (std::size_t from = 0; from < flows.size(); ++from) {
    for (std::size_t to = 0; to < flows.size(); ++to) {
      if (flows[from] == nullptr || flows[to] == nullptr) continue;
      lost += flows[from]->sent_to()[to] - flows[to]->received_from()[from];
    }
  }
  return lost;
}

}  // namespace

Run::~Run() = default;

emu::Result<std::unique_ptr<Run>> Run::make(const ClusterOptions& options, Scenario scenario) {
  std::unique_ptr<Run> run(new Run(std::move(scenario)));
  if (auto built = run->build(options); !built) return std::unexpected(built.error());
  return run;
}

emu::Result<void> Run::build(const ClusterOptions& options) {
  auto cluster = Cluster::make(options);
  if (!cluster) return std::unexpected(cluster.error());
  cluster_ = std::move(*cluster);
  const auto nodes = static_cast<std::size_t>(cluster_->nodes());
  starved_until_ns_.resize(nodes);
  const double link_bps = static_cast<double>(options.config.network.link_bps());
  for (std::size_t n = 0; n < nodes; ++n) {
    apps_.push_back(std::make_unique<NodeApp>(*cluster_, static_cast<int>(n)));
    NodeApp& app = *apps_.back();
    for (tools::Clip& clip : scenario_.clips) {
      app.clip_keys.push_back(app.app.reg(clip.stream.data(), clip.stream.size(), 0));
    }
    cluster_->events(static_cast<int>(n)).on_admission =
        [this, n](std::uint32_t qpn, const hca::AdmissionOutcome& outcome) {
          for (auto& stream : streams_) {
            const bool asked = stream->from() == static_cast<int>(n);
            if (asked && stream->sender_qpn() == qpn && !stream->answered()) {
              stream->admission(outcome);
            }
          }
        };
    if (scenario_.best_effort_bps > 0 && nodes > 1) {
      const double packet_bits = options.config.network.packet_size *
                                 static_cast<double>(options.config.network.flit_bits);
      const DatagramOptions flow{kBestEffortSl, options.config.network.packet_size,
                                 packet_bits / static_cast<double>(scenario_.best_effort_bps) * 1e9,
                                 true, scenario_.seed * 7919 + n};
      best_effort_.push_back(std::make_unique<Datagrams>(flow, app, nodes));
    }
    if (scenario_.control && nodes > 1) {
      const DatagramOptions flow{kControlSl, kControlFlits, kControlGapNs, false,
                                 scenario_.seed * 104729 + n};
      control_.push_back(std::make_unique<Datagrams>(flow, app, nodes));
    }
  }
  (void)link_bps;
  connect_all(best_effort_);
  connect_all(control_);
  for (std::size_t i = 0; i < scenario_.streams.size(); ++i) {
    const int from = options.config.node_index(scenario_.streams[i].from);
    const int to = options.config.node_index(scenario_.streams[i].to);
    streams_.push_back(std::make_unique<Stream>(scenario_, i,
                                                *apps_[static_cast<std::size_t>(from)],
                                                *apps_[static_cast<std::size_t>(to)]));
  }
  return {};
}

void Run::turn() {
  for (auto& stream : streams_) {
    if (!starved(static_cast<std::size_t>(stream->from()))) stream->tick();
  }
  for (auto& flow : best_effort_) {
    if (flow != nullptr) flow->tick();
  }
  for (auto& flow : control_) {
    if (flow != nullptr) flow->tick();
  }
  for (auto& app : apps_) {
    if (app != nullptr && cluster_->acts(app->node)) app->app.ring(cluster_->believes(app->node));
  }
  cluster_->turn();
}

void Run::run_ns(emu::EmuNs ns) {
  const emu::EmuNs until = cluster_->now_ns() + ns;
  while (cluster_->now_ns() < until) turn();
}

void Run::admit() {
  for (auto& stream : streams_) {
    stream->ask_admission();
    const emu::EmuNs limit = cluster_->now_ns() + 2 * kPatienceNs;
    while (!stream->answered() && cluster_->now_ns() < limit) turn();
    CHECK(stream->answered());
  }
}

void Run::start() {
  const emu::EmuNs begin = cluster_->now_ns() + kLeadNs;
  end_ns_ = begin + static_cast<emu::EmuNs>(scenario_.seconds * 1e9);
  for (auto& stream : streams_) {
    const auto frames = static_cast<std::uint64_t>(scenario_.seconds * stream->plan().rate.frames /
                                                   stream->plan().rate.seconds);
    if (stream->admitted()) stream->start(begin, frames);
  }
  for (auto& flow : best_effort_) flow->start(begin, end_ns_);
  for (auto& flow : control_) flow->start(begin, end_ns_);
  run_ns(kLeadNs / 2);
  cluster_->start_measuring();
}

bool Run::over() const {
  if (cluster_->now_ns() < end_ns_) return false;
  const auto patience_ns = kPatienceNs + static_cast<emu::EmuNs>(scenario_.seconds * 1e9);
  if (cluster_->now_ns() > end_ns_ + patience_ns) return true;
  const bool streams_over = std::all_of(streams_.begin(), streams_.end(),
                                        [](const auto& stream) { return stream->over(); });
  return streams_over && lost_of(best_effort_) + lost_of(control_) == 0;
}

void Run::play() {
  while (!over()) turn();
}

emu::EmuNs Run::left_ns() const { return end_ns_ - std::min(end_ns_, cluster_->now_ns()); }

void Run::kill_apps(int node) {
  const auto n = static_cast<std::size_t>(node);
  apps_[n] = nullptr;
  for (auto& stream : streams_) {
    if (stream->from() == node || stream->to() == node) stream->stop();
  }
  if (!best_effort_.empty()) best_effort_[n] = nullptr;
  if (!control_.empty()) control_[n] = nullptr;
}

std::uint64_t Run::lost() const {
  std::uint64_t lost = lost_of(best_effort_) + lost_of(control_);
  for (const auto& stream : streams_) lost += stream->lost();
  return lost;
}

std::uint64_t Run::duplicated() const {
  std::uint64_t duplicated = 0;
  for (const auto& stream : streams_) duplicated += stream->duplicated();
  for (const auto* flows : {&best_effort_, &control_}) {
    for (const auto& flow : *flows) duplicated += flow == nullptr ? 0 : flow->duplicated();
  }
  return duplicated;
}

}  // namespace sim
