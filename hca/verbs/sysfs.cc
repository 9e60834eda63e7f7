// Small files of a device, which programs read by these two functions (ibv_devinfo: board_id).
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "hca/verbs/nodes.h"
#include "hca/verbs/objects.h"

using namespace hca;

extern "C" {

const char* ibv_get_sysfs_path() {
  // Never destroyed: other libraries' destructors may come after ours.
  static const auto& path = *new std::string([] {
    const std::string folder = run_folder("sys/nodes");
    return folder.empty() ? std::string("/sys") : folder;
  }());
  return path.c_str();
}

// The length without the newline at the end, or -1.
int ibv_read_sysfs_file(const char* folder, const char* file, char* buffer, std::size_t size) {
  if (folder == nullptr || file == nullptr || buffer == nullptr || size == 0) return -1;
  const std::string path = std::string(folder) + "/" + file;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t got = ::read(fd, buffer, size - 1);
  ::close(fd);
  if (got < 0) return -1;
  if (got > 0 && buffer[got - 1] == '\n') --got;
  buffer[got] = '\0';
  return static_cast<int>(got);
}

}  // extern "C"
