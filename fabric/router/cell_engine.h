// The cell switch of GigaNet: flits are cells, each names its connection (source and destination),
// a router keeps them in one memory, in a queue for each connection at the output that it takes.
// Outputs and HCAs serve connections in turn, cell by cell. Seen by others as Network::Impl.
#pragma once

#include <vector>

#include "fabric/router/general_links.h"
#include "fabric/router/impl.h"

namespace fabric::cell {

inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

// Connections that have something to send, in the order of their turns: a list through `next`.
struct Turns {
  std::uint32_t first = kNone;
  std::uint32_t last = kNone;
};

struct Connection {
  std::uint32_t first = kNone;  // cells of a router, messages of an HCA
  std::uint32_t last = kNone;
  std::uint32_t next = kNone;  // in Turns
  std::uint32_t count = 0;     // cells
  bool quenched = false;       // its source was told to stop
};

struct Cell {
  general::Flit flit;
  std::uint32_t next = kNone;
  std::uint8_t in_port = 0;
  std::uint8_t hops = 0;  // links from its source
};

struct OutPort {
  Turns turns;
  std::uint32_t credits = 0;
  std::uint32_t queued = 0;
  std::uint32_t arrived = kNone;  // a cell that came in the last cycle by this port
  std::uint32_t held = 0;         // cells in the memory that came by this port
  bool to_hca = false;
  LinkFlits link;
  std::array<LaneCounters, emu::kVlCount> received{};
  std::array<LaneCounters, emu::kVlCount> sent{};
  std::uint64_t wait_cycles = 0;
};

struct Switch {
  emu::RouterId id = 0;
  std::vector<OutPort> ports;
  std::vector<Connection> connections;
  std::vector<Cell> memory;
  std::uint32_t free = kNone;
  std::uint32_t held = 0;
  ActivityWindow window{};
};

struct Source {
  Turns turns;
  std::vector<Connection> to;           // [destination] its messages, in Message::next
  std::vector<int> stopped;             // [destination] stops less goes
  std::vector<std::uint16_t> progress;  // [destination] cells of its first message that have left
  std::uint32_t credits = 0;
  // Of its card: cells that came and were not taken, a ring; when it may take a message's end.
  std::vector<general::Flit> card;
  std::uint32_t card_first = 0;
  std::uint32_t card_count = 0;
  emu::Cycle takes_at = 0;
  int backlog = 0;
  std::array<LaneCounters, emu::kVlCount> sent_by{};
  std::array<LaneCounters, emu::kVlCount> received{};
  std::uint64_t wait_cycles = 0;
};

class Engine final : public Network::Impl {
 public:
  Engine(const NetworkSpec& network_spec, Graph network_graph, ControlHook* control_hook);

  void step(emu::Cycle cycles) override;
  void ready(hca::MessageId id) override;
  void age(std::uint64_t) override {}
  void close_window() override;
  // Connections take turns: there are no weights and no Vticks.
  void set_weights(emu::RouterId, emu::PortId, const emu::VlWeights&) override {}
  void set_wire_weights(emu::NodeId, const emu::VlWeights&) override {}
  void set_vtick(emu::RouterId, emu::PortId, emu::Vl, emu::Vtick) override {}
  void set_wire_vtick(emu::NodeId, emu::Vl, emu::Vtick) override {}
  PortCounters router_counters(emu::RouterId router, emu::PortId port) const override;
  PortCounters wire_counters(emu::NodeId node) const override;
  LinkFlits link_flits(emu::RouterId router, emu::PortId port) const override;
  Network::Occupancy occupancy(emu::RouterId router, emu::PortId port) const override;
  int wire_backlog(emu::NodeId node) const override { return sources_[node].backlog; }
  std::string audit() const override;
  std::vector<Wait> waits() const override { return {}; }

 private:
  // A stop or a go on its way to a source.
  struct Order {
    emu::Cycle due;
    std::uint32_t connection;
    int change;
    bool operator<(const Order& other) const { return due > other.due; }
  };
  void cycles_until(emu::Cycle end);
  void take_orders();
  void send_order(const Cell& cell, std::uint32_t connection, int change);
  void queue_message(hca::MessageId id);
  unsigned unit_of(emu::NodeId node) const {
    return static_cast<unsigned>(switches_.size()) + node;
  }
  std::uint32_t connection_of(const hca::Message& message) const {
    return static_cast<std::uint32_t>(message.src * graph.nodes.size() + message.dest);
  }
  void send(emu::NodeId node);
  void receive(emu::NodeId node);
  void take(emu::NodeId node);
  void tail_left(Source& source, hca::MessageId id);
  void tail_arrived(emu::NodeId node, hca::MessageId id);
  void step_switch(Switch& s);
  void output(Switch& s, unsigned port);
  void enqueue(Switch& s, unsigned in_port);
  void decode(Switch& s, unsigned port);
  void ask_admission(Switch& s, unsigned in_port, unsigned out_port, hca::Message& message);

  general::Links links_;
  std::vector<Switch> switches_;
  std::vector<Source> sources_;
  std::vector<Order> orders_;  // a heap, the next one first
};

}  // namespace fabric::cell
