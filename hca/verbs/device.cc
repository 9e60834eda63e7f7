// The list of devices (one HCA for each node that the program is on), opening and closing them.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "hca/verbs/nodes.h"
#include "hca/verbs/objects.h"
#include "hca/verbs/rdma_core.h"
#include "hca/verbs/say.h"
#include "hca/verbs/session.h"

namespace hca {

namespace {

extern "C" const char* ibv_get_sysfs_path();  // sysfs.cc; in no header of programs

std::mutex g_device_lock;
// Never destroyed: other libraries' destructors may come after ours.
auto& g_devices =
    *new std::vector<Device*>;  // by the node's place in kNodeSocketVariable; null: not in use

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

// Under g_device_lock: whether this program may see devices at all; it says why not, also in errno.
bool on_nodes() {
  if (std::getenv(kNodeSocketVariable) == nullptr) {
    say("{} is not set; run programs by: flitnet exec NODE -- PROGRAM", kNodeSocketVariable);
    errno = ENODEV;
    return false;
  }
  if (const std::string other = untried_rdma_core(); !other.empty()) {
    say("{} is of an rdma-core that this library was never tried with (only {}); {}=any tries it",
        other, kRdmaCoreTried, kRdmaCoreVariable);
    errno = ENODEV;
    return false;
  }
  return true;
}

// What the node calls its device; among several the last digits count them: flitnet0, flitnet1.
std::string device_name(const NodePage& node, std::size_t place, std::size_t nodes) {
  std::string name(node.device_name, ::strnlen(node.device_name, sizeof node.device_name));
  if (nodes == 1) return name;
  return name.substr(0, name.find_last_not_of("0123456789") + 1) + std::to_string(place);
}

// Under g_device_lock. The device with one more reference, or null.
Device* acquire_device(const std::string& socket, std::size_t place, std::size_t nodes) {
  if (Device* device = g_devices[place]; device != nullptr) {
    ++device->references;
    return device;
  }
  auto session = open_session(socket.c_str());
  if (!session) return nullptr;
  auto* device = new (std::nothrow) Device{};
  if (device == nullptr) return null_with(ENOMEM);
  device->node_page = session->node_page;
  device->spare = std::move(session);
  device->socket = socket;
  device->node_type = IBV_NODE_CA;
  device->transport_type = IBV_TRANSPORT_IB;
  put(device->name, device_name(node_in(*device->node_page), place, nodes));
  put(device->dev_name, "uverbs" + std::to_string(place));
  put(device->dev_path, "/sys/class/infiniband_verbs/uverbs" + std::to_string(place));
  put(device->ibdev_path, sysfs_path(device->name));
  device->references = 1;
  return g_devices[place] = device;
}

void release_device(Device* device) {
  const std::lock_guard lock(g_device_lock);
  if (--device->references > 0) return;
  std::replace(g_devices.begin(), g_devices.end(), device, static_cast<Device*>(nullptr));
  delete device;
}

// hcad takes back all that is left, and says when: from then on the program's memory is its own.
// The end of the connection wakes who waits for an event.
void end_session(Session& session) {
  std::unique_lock lock(session.closing, std::defer_lock);
  // In a forked child, a thread that it does not have may hold it; and nobody waits.
  if (!session.link->abandoned()) lock.lock();
  session.closed = true;
  ControlRequest request{};
  request.op = ControlOp::goodbye;
  (void)session.link->ask(request);
  session.link->hang_up();
}

}  // namespace

}  // namespace hca

using namespace hca;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const std::lock_guard lock(g_device_lock);
  if (count != nullptr) *count = 0;
  const auto sockets = on_nodes() ? node_sockets() : std::vector<std::string>{};
  if (g_devices.size() < sockets.size()) g_devices.resize(sockets.size());
  auto** list = static_cast<ibv_device**>(std::calloc(sockets.size() + 1, sizeof(ibv_device*)));
  if (list == nullptr) return null_with(ENOMEM);
  int found = 0;  // none: an empty list, as where there is no hardware, and errno says why
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    Device* device = acquire_device(sockets[i], i, sockets.size());
    if (device != nullptr) list[found++] = device;
  }
  if (count != nullptr) *count = found;
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  for (ibv_device** each = list; *each != nullptr; ++each) {
    release_device(static_cast<Device*>(*each));
  }
  std::free(list);
}

const char* ibv_get_device_name(ibv_device* device) {
  return device != nullptr ? device->name : nullptr;
}

int ibv_get_device_index(ibv_device*) { return -1; }  // the kernel has none

__be64 ibv_get_device_guid(ibv_device* device) {
  if (device == nullptr) return 0;
  const std::lock_guard lock(g_device_lock);
  return __builtin_bswap64(node_in(*static_cast<Device*>(device)->node_page).node_guid);
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
    session = open_session(device->socket.c_str());
    const std::lock_guard lock(g_device_lock);
    if (session) device->node_page = session->node_page;
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
  end_session(*context->session);
  pthread_mutex_destroy(&base_context->mutex);
  delete context;
  release_device(device);
  return 0;
}

ibv_context* ibv_import_device(int) { return null_with(EOPNOTSUPP); }

}  // extern "C"
