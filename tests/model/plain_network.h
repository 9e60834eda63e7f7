// The fabric and its HCAs once more, written for reading: real flits in real queues, one stage
// after the other, as fabric/router/README.md says. Slow. The random-load test compares every event
// of the fast engine with it. Shares with the engine only the values of its interface and the
// graph.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/route/routing.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/spec.h"
#include "fabric/topo/graph.h"
#include "hca/wire/packet.h"
#include "tests/model/plain_model.h"
#include "tests/model/plain_scheduler.h"

namespace model {

struct PlainMessage {
  hca::SendPacket packet;
  emu::NodeId src = 0;
  emu::NodeId dest = 0;
  int flits = 0;
  emu::Vl vl_in = 0;
  emu::Cycle launch = 0;
  emu::Cycle fronted = 0;  // it came to the head of its lane at the HCA
  emu::Cycle head_cycle = 0;
  emu::RouterId rejected_by = emu::kNoRouter;
  bool is_answer = false;
  int received = 0;                                // flits
  std::shared_ptr<const fabric::RouteTable> ways;  // from when its head leaves
};
using MessagePtr = std::shared_ptr<PlainMessage>;

struct Circuit;
// Dummies are heads and tails without payload: what preemption cuts a message into worms with.
struct Flit {
  enum class Kind { payload, dummy_head, dummy_tail, probe };
  MessagePtr message;
  int number = 0;  // of the payload: 0 ... message->flits - 1
  Stamp stamp = 0;
  Kind kind = Kind::payload;
  bool is_dummy() const { return kind != Kind::payload; }
  bool is_last() const { return !is_dummy() && number == message->flits - 1; }
  bool is_head() const {
    if (circuit) return kind == Kind::probe;
    return kind == Kind::dummy_head || (!is_dummy() && number == 0);
  }
  bool is_tail() const {
    if (circuit) return closes;
    return kind == Kind::dummy_tail || is_last();
  }
  bool ends_block() const { return is_tail() || kind == Kind::probe; }
  // Of a circuit: its only head is the probe, its tail what closes it.
  std::shared_ptr<Circuit> circuit = nullptr;
  bool closes = false;
};

struct LinkFlit {
  emu::Cycle arrives;
  emu::Vl lane;
  Flit flit;
};
struct LinkCredit {
  emu::Cycle arrives;
  emu::Vl lane;
  std::size_t level;
};
// One direction of a cable: flits one way, credits for them the other way.
struct Link {
  std::size_t number;  // its place in PlainNetwork::links_
  std::deque<LinkFlit> flits;
  std::deque<LinkCredit> credits;
};

inline constexpr std::size_t kLanes = 32;  // circuits may have more than a message can name
inline constexpr std::size_t kLevels = 3;  // preemption: control, real time, best effort

// An input buffer, or an output lane of level 0.
struct LaneAt {
  int port;
  emu::Vl lane;
  std::size_t level = 0;
  bool operator==(const LaneAt&) const = default;
};

// Of an input lane; preemption has one for each level.
struct InputBuffer {
  enum class State { idle, arbitrating, waiting, active, suspended };
  State state = State::idle;  // of the message at the front
  LaneAt out{};               // its output lane, once routed
  int waited = 0;             // recovery: cycles in which it found no free lane
  std::deque<Flit> flits;
  std::deque<MessagePtr> messages;  // whose heads came and whose tails have not crossed
  MessagePtr arriving;              // its tail has not come
  bool worm_open = false;           // a head has crossed, its tail has not
  std::optional<Flit> dummy;        // must cross before the flits do
  bool is_closing() const { return dummy && dummy->is_tail(); }
  const Flit& next() const { return dummy ? *dummy : flits.front(); }
  bool has_next() const { return dummy || !flits.empty(); }
};

struct OutputLane {
  std::deque<Flit> buffer;
  std::array<int, kLevels> credits{};
  std::optional<LaneAt> owner;
  std::deque<LaneAt> line;  // heads that wait for it
};

struct PlainPort {
  std::array<std::array<InputBuffer, kLevels>, kLanes> in;  // [lane][level]
  std::array<OutputLane, kLanes> out;
  // Of the inputs of a multiplexed crossbar, of the output of a full one.
  std::unique_ptr<PlainClock> clock;
  std::unique_ptr<PlainScheduler> scheduler;
  int last_served = -1;   // by the VC multiplexer
  Link* to_me = nullptr;  // null: nothing is attached
  Link* from_me = nullptr;
};

struct PlainRouter {
  emu::RouterId id = 0;
  std::vector<PlainPort> ports;
};

struct SourceLane {
  MessagePtr current;
  std::deque<MessagePtr> queue;  // behind it
  int sent = 0;                  // flits of the current one that have left
  std::shared_ptr<Circuit> circuit;
  bool probe_due = false;
  bool silent = false;  // waits for the answer to its probe
  Stamp stamp = 0;      // of its next flit
  std::array<int, kLevels> credits{};
};

// Messages of one stream; one circuit at a time.
struct PlainStream {
  enum class State { idle, wants, probing, open };
  State state = State::idle;
  std::deque<MessagePtr> queue;
  std::shared_ptr<Circuit> circuit;
  emu::Cycle since = 0;
  unsigned attempts = 0;
};

struct Circuit {
  emu::NodeId source;
  std::size_t stream;
  emu::Vl lane;  // at the HCA
  bool stays;    // opened by a probe packet: until a release
  struct Hop {
    emu::RouterId router;
    LaneAt in;
    LaneAt out;
  };
  std::vector<Hop> hops;
};
// On its way back: `hops_left` routers to pass, then the HCA.
struct Signal {
  emu::Cycle arrives;
  std::shared_ptr<Circuit> circuit;
  std::size_t hops_left;
  bool accepted;
};

struct PlainHca {
  emu::NodeId node = 0;
  std::array<SourceLane, kLanes> lanes;
  std::vector<PlainStream> streams;  // circuits
  std::array<MessagePtr, kLanes> arriving;
  std::unique_ptr<PlainClock> clock;
  std::unique_ptr<PlainScheduler> scheduler;
  Link* to_me = nullptr;
  Link* from_me = nullptr;
};

// Deadlock recovery: the one token that lets a message into the recovery lanes.
struct Token {
  std::size_t router = 0;  // where it is while nobody has it
  MessagePtr holder;
  MessagePtr captured_by;                  // in this cycle
  std::optional<std::size_t> released_at;  // in this cycle
};

// A worm comes whole, head to tail, nothing between.
void check_worm(MessagePtr& arriving, const Flit& flit);

class PlainNetwork final : public PlainModel {
 public:
  PlainNetwork(const fabric::NetworkSpec& spec, fabric::ControlHook* hook);

  emu::Cycle now() const override { return now_; }
  void submit(emu::NodeId src, const hca::SendPacket& packet) override;
  void step() override;
  void set_weights(emu::RouterId router, emu::PortId port, const emu::VlWeights& weights) override;
  void set_wire_weights(emu::NodeId node, const emu::VlWeights& weights) override;
  void set_lane_vtick(emu::RouterId router, emu::PortId port, emu::Vl lane,
                      emu::Vtick vtick) override;
  void set_wire_vtick(emu::NodeId node, emu::Vl lane, emu::Vtick vtick) override;
  void set_down(std::span<const fabric::LinkEnd> links) override;

  // Flits and credits conserved, no lane owned twice. Order inside a message is checked on arrival.
  void check_invariants() const override;
  int live_messages() const override { return live_; }

 private:
  Link* new_link();
  void connect_links();
  void set_up_lanes();
  void make_ready(const MessagePtr& message);
  void step_hca_send(PlainHca& hca);
  void step_hca_receive(PlainHca& hca);
  void tail_arrived(PlainHca& hca, const MessagePtr& message, emu::Vl lane);
  void step_router(PlainRouter& router);
  void stage5(PlainRouter& router);
  emu::Vl next_to_send(PlainPort& port, const std::vector<Waiting>& able);
  void stage4(PlainRouter& router);
  std::vector<LaneAt> may_cross(PlainRouter& router, std::size_t port) const;
  std::vector<Waiting> waiting_of(PlainRouter& router, const std::vector<LaneAt>& wishes) const;
  std::vector<LaneAt> allocate(PlainRouter& router);
  void cross(PlainRouter& router, LaneAt from);
  void worm_crossed(PlainRouter& router, LaneAt from, const MessagePtr& interrupted);
  void arrive(PlainRouter& router, PlainPort& port, emu::Vl lane, Flit flit);
  void join_line(PlainRouter& router, LaneAt me);
  // Preemption: a head of `level` came, lower ones of its lane make way.
  void make_way(PlainRouter& router, PlainPort& port, emu::Vl lane, std::size_t level);
  void interrupt(PlainRouter& router, PlainPort& port, LaneAt at);
  bool is_accelerated(const PlainRouter& router, LaneAt at) const;
  void stage3(PlainRouter& router);
  void stage2(PlainRouter& router);
  std::vector<LaneAt> heads_in_turn(PlainRouter& router);
  void learn_output(PlainRouter& router, LaneAt me, LaneAt out, std::vector<LaneAt>& claimed);
  // Deadlock recovery (plain_recovery.cc).
  bool recovers(const PlainRouter& router, const PlainMessage& message) const;
  std::optional<LaneAt> free_lane(const PlainRouter& router, const PlainMessage& message,
                                  const std::vector<LaneAt>& claimed) const;
  std::optional<LaneAt> lost_head(const PlainRouter& router) const;
  void pass_token();
  void check_recovery_lanes() const;
  // The output lane of a head, by what the router knows in this cycle; `claimed`: lanes that heads
  // before it in this cycle were given.
  LaneAt choose(const PlainRouter& router, const PlainMessage& message,
                const std::vector<LaneAt>& claimed) const;
  void ask_admission(const PlainRouter& router, std::size_t in_port, LaneAt out,
                     PlainMessage& message);
  void stage1(PlainRouter& router);
  // Circuits (plain_circuit.cc).
  bool circuits() const { return spec_.router == fabric::RouterKind::circuit; }
  void reserve_lanes(PlainRouter& router);
  void signal(const std::shared_ptr<Circuit>& circuit, std::size_t hops_left, bool accepted);
  void pass_signals();
  void begin_probes(PlainHca& hca);
  void take_signal(PlainHca& hca, Circuit& circuit, bool accepted);
  void begin_message(PlainHca& hca, std::size_t lane);
  void circuit_closed(PlainHca& hca, std::size_t lane);
  void answer_open(PlainStream& stream);
  void ready_for_circuit(const MessagePtr& message);
  void probe_left(PlainHca& hca, SourceLane& lane);
  Flit next_flit(const PlainHca& hca, const SourceLane& lane) const;
  // Room that must be there for this flit to leave: of virtual cut-through the whole packet.
  int room_for(const Flit& flit) const {
    const bool whole = spec_.router == fabric::RouterKind::cut_through && flit.is_head();
    return whole ? flit.message->flits : 1;
  }
  // Clocks move on; stamps that read otherwise now are read again.
  void tick();
  void reread(PlainPort& port);
  void reread(PlainHca& hca);
  template <class Side>
  Stamp stamp(Side& side, std::size_t lane, emu::Cycle arrival) {
    const Stamp given = side.clock->stamp(lane, arrival, now_);
    if (side.clock->changed()) reread(side);
    return given;
  }
  std::unique_ptr<PlainScheduler> new_scheduler(emu::SchedulerKind kind,
                                                const emu::VlWeights& weights) const;
  std::unique_ptr<PlainClock> new_clock(emu::SchedulerKind kind, fabric::CounterKind counters,
                                        std::size_t slots) const;
  // Of the routers: a traditional one needs no others.
  fabric::CounterKind counters() const {
    return traditional() ? fabric::CounterKind::epoch : spec_.counters;
  }
  fabric::CounterKind hca_counters() const {
    return spec_.hca_scheduler ? spec_.counters : counters();
  }
  // Strict class priority: without the lanes of best effort where there are others.
  std::vector<Waiting> first_class(std::vector<Waiting> waiting) const;
  // Against other inputs: all of best effort alike and after every other flit.
  Stamp urgency_of(const Choice& choice, bool yields) const;
  // A lane that could send this flit.
  Waiting waiting(emu::Vl lane, const Flit& flit, Stamp stamp) const;
  std::size_t level_of(const PlainMessage& message) const {
    return preemptive() ? 2 - static_cast<std::size_t>(message.packet.traffic_class) : 0;
  }
  std::size_t levels() const { return preemptive() ? kLevels : 1; }  // others stay empty
  bool preemptive() const { return spec_.router == fabric::RouterKind::preemptive; }
  bool leads_to_hca(const PlainRouter& router, std::size_t port) const {
    return graph_.routers[router.id][port].node != fabric::kNoNode;
  }
  static InputBuffer& buffer_at(PlainRouter& router, LaneAt at) {
    return router.ports[static_cast<std::size_t>(at.port)].in[at.lane][at.level];
  }
  static const InputBuffer& buffer_at(const PlainRouter& router, LaneAt at) {
    return router.ports[static_cast<std::size_t>(at.port)].in[at.lane][at.level];
  }
  // Of the clock of an input port.
  static std::size_t slot(LaneAt at) { return at.lane * kLevels + at.level; }
  // The highest level of the lane that has a message.
  static bool is_top(const PlainPort& port, LaneAt at) {
    for (std::size_t above = at.level + 1; above < kLevels; ++above)
      if (!port.in[at.lane][above].messages.empty()) return false;
    return true;
  }
  bool stamps_at_head() const { return scheduler_kind() == emu::SchedulerKind::head_of_line; }
  // When the next flit of an HCA's message came, as its scheduler sees it.
  emu::Cycle came(const PlainMessage& message) const {
    if (hca_scheduler_kind() == emu::SchedulerKind::head_of_line) return now_;
    // Counters of epochs see no farther back than one of them.
    if (spec_.counters != fabric::CounterKind::epoch) return message.launch;
    return std::max(message.launch,
                    message.fronted - std::min(message.fronted, static_cast<emu::Cycle>(kPeriod)));
  }
  bool traditional() const { return spec_.router == fabric::RouterKind::traditional; }
  bool full_crossbar() const { return spec_.crossbar == fabric::CrossbarKind::full; }
  emu::SchedulerKind scheduler_kind() const {
    return traditional() ? emu::SchedulerKind::fcfs : of_connections(spec_.scheduler);
  }
  emu::SchedulerKind hca_scheduler_kind() const {
    return spec_.hca_scheduler ? of_connections(*spec_.hca_scheduler) : scheduler_kind();
  }
  // The Vtick of a circuit is that of the connection that has it.
  emu::SchedulerKind of_connections(emu::SchedulerKind kind) const {
    if (circuits() && kind == emu::SchedulerKind::virtual_clock) return emu::SchedulerKind::fgvc;
    if (circuits() && kind == emu::SchedulerKind::fair_queueing) return emu::SchedulerKind::fgfq;
    return kind;
  }
  emu::Cycle arrival() const { return now_ + static_cast<emu::Cycle>(spec_.link_delay); }
  // The first message of the lane changed.
  void new_front(PlainHca& hca, std::size_t lane);

  fabric::NetworkSpec spec_;
  fabric::ControlHook* hook_;
  fabric::Graph graph_;
  fabric::Routes routes_;
  std::shared_ptr<const fabric::RouteTable> ways_;  // of what leaves now
  emu::Cycle now_;
  std::vector<PlainRouter> routers_;
  std::vector<PlainHca> hcas_;
  std::deque<Link> links_;  // a deque: its elements stay where they are
  std::multimap<emu::Cycle, MessagePtr> launches_;
  std::deque<Signal> signals_;
  std::vector<Signal> at_hcas_;  // signals of this cycle
  std::size_t lanes_;
  int live_ = 0;
  Token token_;
};

}  // namespace model
