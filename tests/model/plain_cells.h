// The cell switch once more, written for reading: a queue of cells for each connection at each
// output, served in turn. Shares with the engine only the values of its interface and the graph.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/route/routing.h"
#include "fabric/topo/graph.h"
#include "tests/model/plain_network.h"

namespace model {

using Connection = std::pair<emu::NodeId, emu::NodeId>;  // source, destination

struct PlainCell {
  MessagePtr message;
  int number = 0;
  int hops = 0;  // links from its source
  std::size_t in_port = 0;
  Connection connection() const { return {message->src, message->dest}; }
};

struct CellLink {
  std::deque<std::pair<emu::Cycle, PlainCell>> cells;
  std::deque<emu::Cycle> credits;
};

struct CellPort {
  std::map<Connection, std::deque<PlainCell>> queues;
  std::deque<Connection> turns;
  std::optional<PlainCell> arrived;
  int credits = 0;
  int held = 0;  // cells in the memory that came by this port
  CellLink* to_me = nullptr;
  CellLink* from_me = nullptr;
};

struct CellRouter {
  emu::RouterId id = 0;
  std::vector<CellPort> ports;
  std::map<Connection, bool> quenched;
};

struct CellSource {
  std::map<emu::NodeId, std::deque<MessagePtr>> queues;
  std::deque<emu::NodeId> turns;
  std::map<emu::NodeId, int> sent;     // cells of the first message
  std::map<emu::NodeId, int> stopped;  // stops less goes
  int credits = 0;
  emu::Cycle takes_at = 0;  // the end of a message; cells before it stay on the link's list
  CellLink* to_me = nullptr;
  CellLink* from_me = nullptr;
};

class PlainCells final : public PlainModel {
 public:
  PlainCells(const fabric::NetworkSpec& spec, fabric::ControlHook* hook);
  emu::Cycle now() const override { return now_; }
  void submit(emu::NodeId src, const hca::SendPacket& packet) override;
  void step() override;
  void check_invariants() const override;
  int live_messages() const override { return live_; }

 private:
  void queue_message(const MessagePtr& message);
  void send(emu::NodeId node);
  void receive(emu::NodeId node);
  void arrived(emu::NodeId node, const MessagePtr& message);
  void step_router(CellRouter& router);
  void output(CellRouter& router, CellPort& port);
  void enqueue(CellRouter& router, std::size_t in_port);
  void ask_admission(const CellRouter& router, const PlainCell& cell, emu::PortId out_port);
  void order(const PlainCell& cell, int change);
  bool leads_to_hca(const CellRouter& router, std::size_t port) const {
    return graph_.routers[router.id][port].node != fabric::kNoNode;
  }
  emu::Cycle arrival() const { return now_ + static_cast<emu::Cycle>(spec_.link_delay); }

  fabric::NetworkSpec spec_;
  fabric::ControlHook* hook_;
  fabric::Graph graph_;
  fabric::Routes routes_;
  emu::Cycle now_;
  std::vector<CellRouter> routers_;
  std::vector<CellSource> sources_;
  std::deque<CellLink> links_;
  std::multimap<emu::Cycle, MessagePtr> launches_;
  std::multimap<emu::Cycle, std::pair<Connection, int>> orders_;
  int live_ = 0;
};

}  // namespace model
