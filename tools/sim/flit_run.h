// A point on the engine alone: messages of the workload wait in an endless queue per node and lane
// and go to the wire halves as these have room. No HCA in front, no transport: what MW and RN
// measure of their routers.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "emu/base/result.h"
#include "fabric/router/network.h"
#include "tools/sim/measure.h"
#include "tools/sim/point.h"
#include "tools/sim/workload.h"

namespace tools {

class FlitRun {
 public:
  static emu::Result<std::unique_ptr<FlitRun>> make(const Point& point);

  void play();
  const Measure& measure() const { return *measure_; }
  const fabric::Network& network() const { return *network_; }
  // Messages that wait before the wire halves.
  std::uint64_t waiting() const { return waiting_; }
  // One JSON object: batches and totals. The same point gives the same bytes.
  std::string json() const;

 private:
  explicit FlitRun(const Point& point) : point_(point) {}
  emu::Result<void> build();
  void enqueue(const FlitMessage& message);
  void push(std::size_t node, std::size_t lane);
  void drain();

  Point point_;
  Setting setting_;
  std::unique_ptr<fabric::Network> network_;
  std::unique_ptr<Measure> measure_;
  Workload workload_;
  std::vector<std::deque<FlitMessage>> queues_;  // [node * lanes + lane]
  std::vector<std::uint32_t> at_wire_;           // handed on and not injected, of each of these
  std::vector<FlitMessage> created_;             // scratch
  std::uint64_t waiting_ = 0;
};

}  // namespace tools
