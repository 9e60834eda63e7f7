// The calls beside verbs (emu/base/launch_ext.h): launch times, emulated time, who refused.
#include "emu/base/launch_ext.h"

#include "hca/verbs/objects.h"

using namespace hca;

extern "C" {

int flitnet_set_launch(ibv_qp* base_qp, std::uint64_t launch_ns, std::uint32_t span_ns) {
  if (base_qp == nullptr) return EINVAL;
  Qp* qp = to_qp(base_qp);
  const std::lock_guard lock(qp->send_lock);
  qp->launch_ns = launch_ns;
  qp->launch_span_ns = span_ns;
  return 0;
}

std::uint64_t flitnet_now(ibv_context* context) {
  if (context == nullptr) return 0;
  return to_context(context)->node().now_ns.load(std::memory_order_relaxed);
}

int flitnet_rejected_by(ibv_qp* qp) { return qp != nullptr ? to_qp(qp)->rejected_by.load() : -1; }

}  // extern "C"

static_assert(std::is_same_v<decltype(flitnet_set_launch), FlitnetSetLaunch> &&
              std::is_same_v<decltype(flitnet_now), FlitnetNow> &&
              std::is_same_v<decltype(flitnet_rejected_by), FlitnetRejectedBy>);
