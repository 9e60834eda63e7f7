// Domains of XRC: opened by programs that share QPs, by the descriptor of a file that they have in
// common or each for itself.
#include <fcntl.h>

#include <new>

#include "hca/verbs/objects.h"

namespace hca {

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* init) {
  constexpr std::uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (context == nullptr || init == nullptr) return null_with(EINVAL);
  if ((init->comp_mask & ~kNeeded) != 0) return null_with(EOPNOTSUPP);
  if ((init->comp_mask & kNeeded) != kNeeded || (init->oflags & ~(O_CREAT | O_EXCL)) != 0) {
    return null_with(EINVAL);
  }
  if (init->fd < -1) return null_with(EBADF);  // -1: of no file
  auto* xrcd = new (std::nothrow) Xrcd{};
  if (xrcd == nullptr) return null_with(ENOMEM);
  ControlRequest request{};
  request.op = ControlOp::open_xrcd;
  request.number = ((init->oflags & O_CREAT) != 0 ? kXrcdCreate : 0) |
                   ((init->oflags & O_EXCL) != 0 ? kXrcdExclusive : 0);
  Answered answered;
  const int error = to_context(context)->link().ask(request, answered, init->fd);
  if (error != 0) {
    delete xrcd;
    return null_with(error);
  }
  xrcd->context = context;
  xrcd->handle = answered.reply.number;
  return xrcd;
}

int close_xrcd(ibv_xrcd* base_xrcd) {
  if (base_xrcd == nullptr) return EINVAL;
  auto* xrcd = static_cast<Xrcd*>(base_xrcd);
  Context* context = to_context(xrcd->context);
  ControlRequest request{};
  request.op = ControlOp::close_xrcd;
  request.number = xrcd->handle;
  const int error = context->link().ask(request);
  if (error != 0 && !context->dead()) return error;
  delete xrcd;
  return 0;
}

}  // namespace hca
