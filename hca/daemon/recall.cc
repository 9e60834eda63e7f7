// Records are read and what stays is written again. Only hcad writes events, but for a program that
// arms a CQ in which completions wait: none comes between. Who reads meanwhile finds the pipe empty
// for a moment, waits on, and is woken.
#include "hca/daemon/recall.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "emu/ring/fd.h"

namespace hca {

bool recall(int pipe, const std::function<bool(const EventRecord&)>& gone) {
  int bytes = 0;
  if (::ioctl(pipe, FIONREAD, &bytes) != 0 || bytes <= 0) return true;
  // The program has the read end; a pipe can be opened again from its other one.
  const emu::UniqueFd read_end = emu::reopen(pipe, O_RDONLY | O_NONBLOCK);
  if (!read_end) return errno != EMFILE && errno != ENFILE;
  std::vector<EventRecord> records(static_cast<std::size_t>(bytes) / sizeof(EventRecord));
  const ssize_t got = ::read(read_end.get(), records.data(), records.size() * sizeof(EventRecord));
  if (got <= 0) return true;  // read by the program meanwhile
  records.resize(static_cast<std::size_t>(got) / sizeof(EventRecord));
  std::erase_if(records, gone);
  // There is room: it held them before.
  if (!records.empty()) (void)!::write(pipe, records.data(), records.size() * sizeof(EventRecord));
  return true;
}

}  // namespace hca
