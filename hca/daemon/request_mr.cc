// Memory regions for programs: registered, registered anew, given up. Of shared memory hcad has
// pages of its own.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdint>
#include <utility>

#include "hca/daemon/control.h"
#include "hca/daemon/request.h"

namespace hca {

namespace {

// The pages of [offset, offset + length) of a memfd that cannot shrink, or nothing.
struct Mapping {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::uint8_t* start = nullptr;
};
Mapping map_shared(int fd, std::uint64_t offset, std::uint64_t length) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  struct stat info {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &info) != 0) return {};
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (length == 0 || offset > size || length > size - offset) return {};
  const std::uint64_t first = offset & ~std::uint64_t{4095};
  const std::size_t bytes = offset - first + length;
  // A memfd that is sealed against writing cannot be mapped writable: then the kernel copies.
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(first));
  if (data == MAP_FAILED) return {};
  return {data, bytes, static_cast<std::uint8_t*>(data) + (offset - first)};
}

constexpr std::uint32_t kNoKey = 0;  // of no region

}  // namespace

int Control::register_mr(Client& client, Incoming& in, ControlReply& reply) {
  const ControlMr& mr = in.request.mr;
  MrSpec spec{mr.address, mr.iova, mr.length, mr.access, nullptr};
  Mapping mapping;
  const bool again = in.request.op == ControlOp::reregister_mr;
  constexpr std::uint32_t kTranslation = 1;
  const bool moves = !again || (mr.mask & kTranslation) != 0;
  client.mrs[kNoKey] = {};  // so that there is room for the mapping, once there is one
  auto room = client.mrs.extract(kNoKey);
  if (in.fd && moves) mapping = map_shared(in.fd.get(), mr.file_offset, mr.length);
  spec.mapped = mapping.start;
  const auto keys = again ? host_->reregister_mr(client.id, in.request.number, mr.mask, mr.pd, spec)
                          : host_->register_mr(client.id, in.request.number, spec);
  if (!keys) {
    if (mapping.data != nullptr) ::munmap(mapping.data, mapping.bytes);
    return keys.error();
  }
  if (again) {
    // Keys change; the pages follow the region unless it moved elsewhere.
    auto old = client.mrs.extract(in.request.number);
    if (!old.empty() && moves) {
      ::munmap(old.mapped().data, old.mapped().bytes);
    } else if (!old.empty()) {
      old.key() = keys->lkey;
      client.mrs.insert(std::move(old));
    }
  }
  if (mapping.data != nullptr) {
    room.key() = keys->lkey;
    room.mapped() = {mapping.data, mapping.bytes};
    client.mrs.insert(std::move(room));
  }
  reply.number = keys->lkey;
  reply.mr.rkey = keys->rkey;
  return 0;
}

int Control::deregister_mr(Client& client, const ControlRequest& request) {
  const int error = host_->deregister_mr(client.id, request.number);
  if (error != 0) return error;
  const auto shared = client.mrs.find(request.number);
  if (shared != client.mrs.end()) {
    ::munmap(shared->second.data, shared->second.bytes);
    client.mrs.erase(shared);
  }
  return 0;
}

}  // namespace hca
