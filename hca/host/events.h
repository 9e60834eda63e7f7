// What hca/host tells its caller outside the shared rings. Calls are made from within Host's
// functions; an implementation notes them and must not call back into Host.
#pragma once

#include <cstdint>
#include <span>

#include "emu/base/units.h"
#include "emu/wire/message.h"
#include "hca/abi/attributes.h"
#include "hca/host/mad.h"
#include "hca/host/memory.h"
#include "hca/host/trouble.h"

namespace hca {

// What became of a request for bandwidth.
enum class AdmissionVerdict : std::uint8_t {
  granted = 0,
  refused_by_hca,     // this node's own link has not enough left
  refused_by_router,  // `router` has not
  no_answer,          // probes were sent again and again; nothing came back
  cancelled,          // the QP went away meanwhile
};

struct AdmissionOutcome {
  AdmissionVerdict verdict = AdmissionVerdict::granted;
  emu::RouterId router = emu::kNoRouter;
  std::uint64_t rate_bps = 0;  // granted
  std::uint64_t free_bps = 0;  // refused_by_hca: what the own link still has
};

class HostEvents {
 public:
  virtual ~HostEvents() = default;
  virtual void completion(ClientId client, std::uint32_t cq) = 0;  // an armed CQ fired
  virtual void wake_cq(ClientId client, std::uint32_t cq) = 0;     // threads sleep on CqPage::tail
  virtual void async(ClientId client, AsyncEvent event,
                     std::uint32_t number) = 0;  // of the CQ or SRQ; of a QP the handle
  virtual void admission(ClientId client, std::uint32_t qpn, const AdmissionOutcome& outcome) = 0;
  // A management datagram for QP1 arrived from that node.
  virtual void mad(emu::NodeId /*source*/, const Mad& /*bytes*/) {}
  // An answer of the subnet's agents, or what nobody answers as it was sent.
  virtual void subnet_mad(emu::Lid /*from*/, std::uint32_t /*qpn*/,
                          std::span<const std::uint8_t> /*mad*/) {}
  // Why what a program asked for failed: for people, no program hears of it.
  virtual void trouble(const Trouble& /*trouble*/) {}
};

}  // namespace hca
