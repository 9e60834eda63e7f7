// The communication manager in hcad: programs' open rdma_cm files, the datagrams between nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "emu/config/config.h"
#include "emu/ring/fd.h"
#include "hca/cm/cm.h"
#include "hca/daemon/options.h"
#include "hca/host/host.h"

namespace hca {

std::string address_text(std::uint32_t v4);

class CmService : public CmOut {
 public:
  CmService(const emu::Config& config, const HostOptions& options);
  void set_host(Host& host) { host_ = &host; }

  // `events`: an end of a pipe; a byte is in it while events wait. 0: it cannot be had.
  CmFileId open(int events, std::uint32_t owner);
  void close(CmFileId file);
  Cm::Answer command(CmFileId file, std::span<const std::uint8_t> command,
                     std::span<std::uint8_t> to, emu::Cycle now) {
    return cm_.command(file, command, to, cycle_time_.ns(now));
  }
  // A datagram came while the host was busy; it is read in the next service().
  void arrived(emu::NodeId source, const Mad& mad) { arrived_.push_back({source, mad}); }
  void service(emu::Cycle now);
  // Hands the host what it had no room for, before it sends: in every turn.
  void send_waiting() {
    while (!unsent_.empty() && host_->send_mad(unsent_.front().dest, unsent_.front().bytes))
      unsent_.pop_front();
  }
  bool has_unsent() const { return !unsent_.empty(); }
  const Cm& cm() const { return cm_; }
  bool waiting() const { return !arrived_.empty(); }

  // Datagrams that wait behind the host's own queue: one for each id that can be. A program that
  // ends says the last word of all its connections at once, and never again.
  static constexpr std::size_t kWaitingMax = CmOptions{}.ids_max;

  // CmOut
  void send(emu::NodeId dest, const Mad& mad) override;
  void events_wait(CmFileId file, bool some) override;

 private:
  emu::CycleTime cycle_time_;
  Cm cm_;
  Host* host_ = nullptr;
  std::unordered_map<CmFileId, emu::UniqueFd> files_;
  std::vector<WaitingMad> arrived_;
  std::vector<WaitingMad> serving_;
  std::deque<WaitingMad> unsent_;  // the host had no room
  bool repeating_ = false;         // what is sent now is said again whenever it is wanted
};

}  // namespace hca
