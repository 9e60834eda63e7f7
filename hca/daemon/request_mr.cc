// Memory regions for programs: registered, registered anew, given up. Of shared memory hcad has
// pages of its own (shared_memory.h).
#include <cstdint>
#include <utility>

#include "hca/daemon/control.h"
#include "hca/daemon/request.h"

namespace hca {

namespace {

constexpr std::uint32_t kNoKey = 0;  // of no region

}  // namespace

int Control::register_mr(Client& client, Incoming& in, ControlReply& reply) {
  const ControlMr& mr = in.request.mr;
  MrSpec spec{mr.address, mr.iova, mr.length, mr.access, nullptr};
  SharedMemory shared;
  const bool again = in.request.op == ControlOp::reregister_mr;
  constexpr std::uint32_t kTranslation = 1;
  const bool moves = !again || (mr.mask & kTranslation) != 0;
  client.mrs[kNoKey] = {};  // so that there is room for the mapping, once there is one
  auto room = client.mrs.extract(kNoKey);
  if (in.fd && moves) {
    shared = SharedMemory::map(in.fd.get(), mr.file_offset, mr.length, client.mapped_bytes);
  }
  spec.mapped = shared.start();
  const auto keys = again ? host_->reregister_mr(client.id, in.request.number, mr.mask, mr.pd, spec)
                          : host_->register_mr(client.id, in.request.number, spec);
  if (!keys) return keys.error();
  if (again) {
    // Keys change; the pages follow the region unless it moved elsewhere.
    auto old = client.mrs.extract(in.request.number);
    if (!old.empty() && !moves) {
      old.key() = keys->lkey;
      client.mrs.insert(std::move(old));
    }
  }
  if (shared.start() != nullptr) {
    room.key() = keys->lkey;
    room.mapped() = std::move(shared);
    client.mrs.insert(std::move(room));
  }
  reply.number = keys->lkey;
  reply.mr.rkey = keys->rkey;
  return 0;
}

int Control::deregister_mr(Client& client, const ControlRequest& request) {
  const int error = host_->deregister_mr(client.id, request.number);
  if (error == 0) client.mrs.erase(request.number);
  return error;
}

}  // namespace hca
