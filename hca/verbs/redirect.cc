// Programs that look into /sys/class/infiniband by themselves (perftest's -W, rdma-core's tests)
// find there what the cluster says of this node, and those that ask whether there is a device file
// before they use a device (UCX) find one: the calls that take a path, in front of the C library's.
// Every other path costs a comparison of its beginning.
#include "hca/verbs/redirect.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "hca/verbs/counter_file.h"
#include "hca/verbs/next.h"
#include "hca/verbs/nodes.h"

namespace hca {

namespace {

constexpr std::string_view kSysfs = "/sys";
constexpr std::string_view kDevices = "/sys/class/infiniband";
constexpr std::string_view kMads = "_mad";  // the devices of libibumad
constexpr std::string_view kDeviceFiles = "/dev/infiniband/";

bool names_devices(const char* path) {
  if (path == nullptr || path[0] != '/' || path[1] != 's') return false;
  if (std::strncmp(path, kDevices.data(), kDevices.size()) != 0) return false;
  const char* after = path + kDevices.size();
  if (std::strncmp(after, kMads.data(), kMads.size()) == 0) after += kMads.size();
  return *after == '/' || *after == '\0';
}

// Files that the kernel's devices have; here they are sockets of hcad. Of opening rdma_cm and umad
// are served (cm_file.cc, umad_file.cc).
bool is_device_file(const char* path) {
  if (path == nullptr || std::strncmp(path, kDeviceFiles.data(), kDeviceFiles.size()) != 0)
    return false;
  const char* name = path + kDeviceFiles.size();
  const std::size_t devices = node_sockets().size();
  if (std::strcmp(name, "rdma_cm") == 0) return devices != 0;
  for (std::size_t i = 0; i < devices; ++i)
    if (name == "uverbs" + std::to_string(i) || name == "umad" + std::to_string(i)) return true;
  return false;
}

// The folder that stands for /sys on this node; empty: this program is on none.
const std::string& node_sysfs() {
  // Never destroyed: programs open files while they exit.
  static const auto* const folder = new std::string(run_folder("sys/nodes"));
  return *folder;
}

// What shows the same to whoever only looks: a character device that all may read and write.
const char* seen_at(const char* path, PathRoom& room) {
  return is_device_file(path) ? "/dev/null" : redirected(path, room);
}

}  // namespace

const char* redirected(const char* path, PathRoom& room) {
  if (!names_devices(path)) return path;
  const std::string& sysfs = node_sysfs();
  const std::string_view rest = path + kSysfs.size();
  if (sysfs.empty() || sysfs.size() + rest.size() >= room.size()) return path;
  std::memcpy(room.data(), sysfs.data(), sysfs.size());
  std::memcpy(room.data() + sysfs.size(), rest.data(), rest.size() + 1);
  return room.data();
}

}  // namespace hca

using namespace hca;

#define FLITNET_BY_PATH(result, name, parameters, arguments)           \
  FLITNET_IN_FRONT(result, name, parameters, arguments, PathRoom room; \
                   path = redirected(path, room))
#define FLITNET_OPENS(result, name, parameters, arguments, counter)     \
  FLITNET_IN_FRONT(result, name, parameters, arguments,                 \
                   if (const auto own = counter arguments) return *own; \
                   PathRoom room; path = redirected(path, room))
#define FLITNET_LOOKED_AT(result, name, parameters, arguments) \
  FLITNET_IN_FRONT(result, name, parameters, arguments, PathRoom room; path = seen_at(path, room))

FLITNET_OPENS(std::FILE*, fopen, (const char* path, const char* mode), (path, mode), fopen_counter)
FLITNET_OPENS(std::FILE*, fopen64, (const char* path, const char* mode), (path, mode),
              fopen_counter)
FLITNET_OPENS(int, openat, (int folder, const char* path, int flags, mode_t mode),
              (folder, path, flags, mode), open_counter_at)
FLITNET_OPENS(int, openat64, (int folder, const char* path, int flags, mode_t mode),
              (folder, path, flags, mode), open_counter_at)
FLITNET_LOOKED_AT(int, stat, (const char* path, void* info), (path, info))
FLITNET_LOOKED_AT(int, stat64, (const char* path, void* info), (path, info))
FLITNET_LOOKED_AT(int, lstat, (const char* path, void* info), (path, info))
FLITNET_LOOKED_AT(int, lstat64, (const char* path, void* info), (path, info))
FLITNET_LOOKED_AT(int, fstatat, (int folder, const char* path, void* info, int flags),
                  (folder, path, info, flags))
FLITNET_LOOKED_AT(int, fstatat64, (int folder, const char* path, void* info, int flags),
                  (folder, path, info, flags))
FLITNET_LOOKED_AT(int, statx, (int folder, const char* path, int flags, unsigned mask, void* info),
                  (folder, path, flags, mask, info))
// What stat and its kin are to a program that was linked to a C library before 2.33, as those are
// that come in wheels and containers: `version` tells of which layout the information is.
FLITNET_LOOKED_AT(int, __xstat, (int version, const char* path, void* info), (version, path, info))
FLITNET_LOOKED_AT(int, __xstat64, (int version, const char* path, void* info),
                  (version, path, info))
FLITNET_LOOKED_AT(int, __lxstat, (int version, const char* path, void* info), (version, path, info))
FLITNET_LOOKED_AT(int, __lxstat64, (int version, const char* path, void* info),
                  (version, path, info))
FLITNET_LOOKED_AT(int, __fxstatat,
                  (int version, int folder, const char* path, void* info, int flags),
                  (version, folder, path, info, flags))
FLITNET_LOOKED_AT(int, __fxstatat64,
                  (int version, int folder, const char* path, void* info, int flags),
                  (version, folder, path, info, flags))
FLITNET_LOOKED_AT(int, access, (const char* path, int mode), (path, mode))
FLITNET_LOOKED_AT(int, faccessat, (int folder, const char* path, int mode, int flags),
                  (folder, path, mode, flags))
FLITNET_BY_PATH(DIR*, opendir, (const char* path), (path))
FLITNET_BY_PATH(int, chdir, (const char* path), (path))
FLITNET_BY_PATH(int, scandir, (const char* path, void* names, void* filter, void* compare),
                (path, names, filter, compare))
FLITNET_BY_PATH(int, scandir64, (const char* path, void* names, void* filter, void* compare),
                (path, names, filter, compare))
FLITNET_BY_PATH(ssize_t, readlink, (const char* path, char* to, std::size_t size), (path, to, size))
FLITNET_BY_PATH(char*, realpath, (const char* path, char* to), (path, to))
// The same of programs that were compiled with _FORTIFY_SOURCE: they say how much room there is.
FLITNET_BY_PATH(ssize_t, __readlink_chk,
                (const char* path, char* to, std::size_t size, std::size_t room_there),
                (path, to, size, room_there))
FLITNET_BY_PATH(char*, __realpath_chk, (const char* path, char* to, std::size_t room_there),
                (path, to, room_there))
FLITNET_OPENS(int, __openat_2, (int folder, const char* path, int flags), (folder, path, flags),
              open_counter_at)
FLITNET_OPENS(int, __openat64_2, (int folder, const char* path, int flags), (folder, path, flags),
              open_counter_at)
