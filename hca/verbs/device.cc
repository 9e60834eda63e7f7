// The list of devices (one: this node's HCA), opening and closing it.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "hca/verbs/objects.h"
#include "hca/verbs/rdma_core.h"
#include "hca/verbs/say.h"
#include "hca/verbs/session.h"

namespace hca {

namespace {

extern "C" const char* ibv_get_sysfs_path();  // sysfs.cc; in no header of programs

std::mutex g_device_lock;
Device* g_device = nullptr;

template <std::size_t N>
void put(char (&to)[N], const std::string& from) {
  std::memcpy(to, from.data(), from.size() < N ? from.size() : N - 1);
}

// A sysfs-shaped folder of this device, or one that is merely there: programs look for optional
// files in it and go on without them.
std::string sysfs_path(const char* name) {
  if (std::getenv("FLITNET_RUN") == nullptr) return "/dev/null";
  return std::string(ibv_get_sysfs_path()) + "/class/infiniband/" + name;
}

// Under g_device_lock. The device, with one more reference, or null.
Device* acquire_device() {
  if (g_device != nullptr) {
    ++g_device->references;
    return g_device;
  }
  const char* path = std::getenv(kNodeSocketVariable);
  if (path == nullptr) {
    say("{} is not set; run programs by: flitnet exec NODE -- PROGRAM", kNodeSocketVariable);
    return null_with(ENODEV);
  }
  if (const std::string other = untried_rdma_core(); !other.empty()) {
    say("{} is of an rdma-core that this library was never tried with (only {}); {}=any tries it",
        other, kRdmaCoreTried, kRdmaCoreVariable);
    return null_with(ENODEV);
  }
  auto session = open_session(path);
  if (!session) return nullptr;
  auto* device = new (std::nothrow) Device{};
  if (device == nullptr) return null_with(ENOMEM);
  device->node_page = std::move(session->node_page);
  device->spare = std::move(session);
  device->node_type = IBV_NODE_CA;
  device->transport_type = IBV_TRANSPORT_IB;
  const NodePage& node = device->node();
  put(device->name,
      std::string(node.device_name, ::strnlen(node.device_name, sizeof node.device_name)));
  put(device->dev_name, "uverbs0");
  put(device->dev_path, "/sys/class/infiniband_verbs/uverbs0");
  put(device->ibdev_path, sysfs_path(device->name));
  device->references = 1;
  return g_device = device;
}

void release_device(Device* device) {
  const std::lock_guard lock(g_device_lock);
  if (--device->references > 0) return;
  if (g_device == device) g_device = nullptr;
  delete device;
}

}  // namespace

}  // namespace hca

using namespace hca;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const std::lock_guard lock(g_device_lock);
  if (count != nullptr) *count = 0;
  auto** list = static_cast<ibv_device**>(std::calloc(2, sizeof(ibv_device*)));
  if (list == nullptr) return null_with(ENOMEM);
  list[0] = acquire_device();
  if (count != nullptr) *count = list[0] != nullptr ? 1 : 0;
  return list;  // no device: an empty list, as where there is no hardware
}

void ibv_free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  if (list[0] != nullptr) release_device(static_cast<Device*>(list[0]));
  std::free(list);
}

const char* ibv_get_device_name(ibv_device* device) {
  return device != nullptr ? device->name : nullptr;
}

int ibv_get_device_index(ibv_device*) { return -1; }  // the kernel has none

__be64 ibv_get_device_guid(ibv_device* device) {
  if (device == nullptr) return 0;
  return __builtin_bswap64(static_cast<Device*>(device)->node().node_guid);
}

ibv_context* ibv_open_device(ibv_device* base_device) {
  if (base_device == nullptr) return null_with(EINVAL);
  auto* device = static_cast<Device*>(base_device);
  std::unique_ptr<Session> session;
  {
    const std::lock_guard lock(g_device_lock);
    ++device->references;
    session = std::move(device->spare);
  }
  if (!session || session->link->look_dead()) {
    const char* path = std::getenv(kNodeSocketVariable);
    session = path != nullptr ? open_session(path) : nullptr;
  }
  auto* context = session ? new (std::nothrow) Context{} : nullptr;
  if (context == nullptr) {
    const int error = errno;
    release_device(device);
    return null_with(error);
  }
  context->home = device;
  context->session = std::move(session);
  fill_ops(*context);
  return &context->context;
}

int ibv_close_device(ibv_context* base_context) {
  if (base_context == nullptr) return EINVAL;
  Context* context = to_context(base_context);
  Device* device = context->home;
  pthread_mutex_destroy(&base_context->mutex);
  delete context;  // hcad sees the connection close and takes back all that is left
  release_device(device);
  return 0;
}

ibv_context* ibv_import_device(int) { return null_with(EOPNOTSUPP); }

}  // extern "C"
