// Protection domains and memory regions. hcad copies registered memory by system calls; memory in a
// memfd that cannot shrink it maps instead, so that small messages cost no call.
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "hca/verbs/inline_recv.h"
#include "hca/verbs/not_cancelled.h"
#include "hca/verbs/objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace hca {

namespace {

struct Mapping {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t offset;
  std::uint64_t inode;
  unsigned device_major;
  unsigned device_minor;
  bool readable;
  bool writable;
  bool shared;
  bool memfd;
};

bool parse(const char* line, Mapping& m) {
  char mode[5] = {};
  int name_at = 0;
  if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &m.start,
                  &m.end, mode, &m.offset, &m.device_major, &m.device_minor, &m.inode,
                  &name_at) < 7) {
    return false;
  }
  m.readable = mode[0] == 'r';
  m.writable = mode[1] == 'w';
  m.shared = mode[3] == 's';
  m.memfd = std::strncmp(line + name_at, "/memfd:", 7) == 0;
  return true;
}

// What stands at [address, address + length): nothing if a byte of it is missing or may not be
// used so. `only`: the one mapping that holds it all, if it is one.
struct Range {
  bool whole = false;
  std::optional<Mapping> only;
};
Range scan_maps(std::uint64_t address, std::uint64_t length, bool write) {
  Range range;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return {true, std::nullopt};  // no /proc: hcad will find out
  std::uint64_t next = address;
  const std::uint64_t end = address + length;
  char line[4352];
  Mapping m{};
  while (next < end && std::fgets(line, sizeof line, maps) != nullptr) {
    if (!parse(line, m) || m.end <= next) continue;
    if (m.start > next || !m.readable || (write && !m.writable)) break;
    if (m.start <= address && m.end >= end) range.only = m;
    next = m.end;
  }
  std::fclose(maps);
  range.whole = next >= end;
  return range;
}

// PROCMAP_QUERY of Linux 6.11, whose headers may be older: asks for the mapping that covers an
// address. Its cost does not grow with the mappings, of which every queue of a program is one.
struct MapQuery {
  std::uint64_t size;
  std::uint64_t query_flags;  // 0: the mapping that covers query_addr
  std::uint64_t query_addr;
  std::uint64_t vma_start;
  std::uint64_t vma_end;
  std::uint64_t vma_flags;  // 1 readable, 2 writable, 8 shared
  std::uint64_t vma_page_size;
  std::uint64_t vma_offset;
  std::uint64_t inode;
  std::uint32_t dev_major;
  std::uint32_t dev_minor;
  std::uint32_t vma_name_size;
  std::uint32_t build_id_size;
  std::uint64_t vma_name_addr;
  std::uint64_t build_id_addr;
};
static_assert(sizeof(MapQuery) == 104);
constexpr unsigned long kMapQuery = _IOWR('f', 17, MapQuery);

enum class Found : std::uint8_t { yes, no, unknown };
Found mapping_at(int maps, std::uint64_t address, Mapping& m) {
  char name[4352] = {};
  MapQuery query{};
  query.size = sizeof query;
  query.query_addr = address;
  query.vma_name_size = sizeof name;
  query.vma_name_addr = reinterpret_cast<std::uint64_t>(name);
  if (::ioctl(maps, kMapQuery, &query) != 0) return errno == ENOENT ? Found::no : Found::unknown;
  m = {.start = query.vma_start,
       .end = query.vma_end,
       .offset = query.vma_offset,
       .inode = query.inode,
       .device_major = query.dev_major,
       .device_minor = query.dev_minor,
       .readable = (query.vma_flags & 1) != 0,
       .writable = (query.vma_flags & 2) != 0,
       .shared = (query.vma_flags & 8) != 0,
       .memfd = std::strncmp(name, "/memfd:", 7) == 0};
  return Found::yes;
}

Range look_up(std::uint64_t address, std::uint64_t length, bool write) {
  const emu::UniqueFd maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!maps) return {true, std::nullopt};  // no /proc: hcad will find out
  Range range;
  const std::uint64_t end = address + length;
  std::uint64_t next = address;
  Mapping m{};
  while (next < end) {
    const Found found = mapping_at(maps.get(), next, m);
    if (found == Found::unknown) return scan_maps(address, length, write);  // an older kernel
    if (found == Found::no || !m.readable || (write && !m.writable)) break;
    if (m.start <= address && m.end >= end) range.only = m;
    next = m.end;
  }
  range.whole = next >= end;
  return range;
}

bool cannot_shrink(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

bool is_file_of(int fd, const Mapping& m) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && info.st_ino == m.inode &&
         major(info.st_dev) == m.device_major && minor(info.st_dev) == m.device_minor;
}

// A descriptor for the memfd of a mapping; none if this process has none any more and may not ask
// the kernel for one, or if the file could shrink under hcad's feet.
emu::UniqueFd sealed_descriptor(const Mapping& m) {
  char path[80];
  std::snprintf(path, sizeof path, "/proc/self/map_files/%" PRIx64 "-%" PRIx64, m.start, m.end);
  emu::UniqueFd found(::open(path, O_RDWR | O_CLOEXEC));  // privileged; needs no open descriptor
  DIR* folder = found ? nullptr : ::opendir("/proc/self/fd");
  if (folder != nullptr) {
    while (const dirent* entry = ::readdir(folder)) {
      const int fd = std::atoi(entry->d_name);
      if (entry->d_name[0] == '.' || fd == ::dirfd(folder) || !is_file_of(fd, m)) continue;
      found = emu::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
      break;
    }
    ::closedir(folder);
  }
  if (found && (!is_file_of(found.get(), m) || !cannot_shrink(found.get()))) found.reset();
  return found;
}

constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                                  IBV_ACCESS_ON_DEMAND;
// Those to flush to memory, of libraries after 44: a kernel that knows them says that the device
// does not.
constexpr unsigned kFlushAccess = 3U << 8;

// Fills the request and finds the descriptor to send along, if any. Returns an errno.
int describe(std::uint64_t address, std::uint64_t length, std::uint64_t iova, unsigned access,
             ControlMr& mr, emu::UniqueFd& fd) {
  const NotCancelled to_its_end;
  access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);  // hints
  if ((access & ~(kKnownAccess | kFlushAccess)) != 0) return EINVAL;
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
      (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return EINVAL;
  }
  if ((access & kFlushAccess) != 0) return EOPNOTSUPP;
  const bool everything = address == 0 && length == ~std::uint64_t{0};  // implicit ODP
  if (everything && (access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
  if ((length > kMaxMrBytes && !everything) || address + length < address) return EINVAL;
  mr = {};
  // Paged on demand: what is not there now may be there when it is used.
  if (length != 0 && (access & IBV_ACCESS_ON_DEMAND) == 0) {
    const Range range = look_up(address, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
    if (!range.whole) return EFAULT;
    if (range.only && range.only->shared && range.only->memfd && range.only->writable) {
      fd = sealed_descriptor(*range.only);
      mr.file_offset = range.only->offset + (address - range.only->start);
    }
  }
  mr.address = address;
  mr.iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  mr.length = length;
  mr.access = access & ~static_cast<unsigned>(IBV_ACCESS_HUGETLB);
  return 0;
}

ibv_mr* register_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                    unsigned access) {
  if (pd == nullptr) return null_with(EINVAL);
  ControlRequest request{};
  request.op = ControlOp::register_mr;
  request.number = pd->handle;
  emu::UniqueFd fd;
  const int wrong =
      describe(reinterpret_cast<std::uint64_t>(address), length, iova, access, request.mr, fd);
  if (wrong != 0) return null_with(wrong);
  auto* mr = new (std::nothrow) Mr{};
  if (mr == nullptr) return null_with(ENOMEM);
  Answered answered;
  const int error = to_context(pd->context)->link().ask(request, answered, fd.get());
  if (error != 0) {
    delete mr;
    return null_with(error);
  }
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->access = access;
  mr->handle = mr->lkey = answered.reply.number;
  mr->rkey = answered.reply.mr.rkey;
  return mr;
}

}  // namespace

}  // namespace hca

using namespace hca;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (context == nullptr) return null_with(EINVAL);
  auto* pd = new (std::nothrow) Pd{};
  if (pd == nullptr) return null_with(ENOMEM);
  ControlRequest request{};
  request.op = ControlOp::create_pd;
  Answered answered;
  if (const int error = to_context(context)->link().ask(request, answered)) {
    delete pd;
    return null_with(error);
  }
  pd->context = context;
  pd->handle = answered.reply.number;
  return pd;
}

int ibv_dealloc_pd(ibv_pd* pd) {
  if (pd == nullptr) return EINVAL;
  auto* mine = static_cast<Pd*>(pd);
  if (mine->parents.load(std::memory_order_relaxed) != 0) return EBUSY;
  if (mine->below != nullptr) {
    mine->below->parents.fetch_sub(1, std::memory_order_relaxed);
    if (mine->thread != nullptr) mine->thread->parents.fetch_sub(1, std::memory_order_relaxed);
    delete mine;
    return 0;
  }
  Context* context = to_context(pd->context);
  ControlRequest request{};
  request.op = ControlOp::destroy_pd;
  request.number = pd->handle;
  const int error = context->link().ask(request);
  if (error != 0 && !context->dead()) return error;  // of a dead device everything can be freed
  delete static_cast<Pd*>(pd);
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return register_mr(pd, address, length, reinterpret_cast<std::uint64_t>(address),
                     static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                        int access) {
  return register_mr(pd, address, length, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                         unsigned access) {
  return register_mr(pd, address, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int) {
  return null_with(EOPNOTSUPP);
}

int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  const auto mask = static_cast<std::uint32_t>(flags);
  const bool moves = (mask & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool regrants = (mask & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  if (mr == nullptr || mask == 0 || (mask & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
      ((mask & IBV_REREG_MR_CHANGE_PD) != 0 && pd == nullptr) ||
      (moves && (address == nullptr || length == 0))) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  auto* mine = static_cast<Mr*>(mr);
  // Of device memory nothing changes, not the domain of its region either: as in Linux.
  if (mine->device_memory != nullptr) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  ControlRequest request{};
  request.op = ControlOp::reregister_mr;
  request.number = mr->lkey;
  emu::UniqueFd fd;
  if (!moves) {
    address = mr->addr;
    length = mr->length;
  }
  const unsigned wanted = regrants ? static_cast<unsigned>(access) : mine->access;
  const auto place = reinterpret_cast<std::uint64_t>(address);
  // Another domain alone is no reason to look at memory that may have gone since.
  const int wrong = moves || regrants ? describe(place, length, place, wanted, request.mr, fd) : 0;
  if (wrong != 0) {
    errno = wrong;
    return IBV_REREG_MR_ERR_INPUT;
  }
  request.mr.mask = mask;
  request.mr.pd = pd != nullptr ? pd->handle : 0;
  Answered answered;
  if (const int error =
          to_context(mr->context)->link().ask(request, answered, moves ? fd.get() : -1)) {
    errno = error;
    return IBV_REREG_MR_ERR_INPUT;
  }
  bring_region_home(*to_context(mr->context), mr->lkey);
  if (moves) {
    mr->addr = address;
    mr->length = length;
  }
  mine->access = wanted;
  if ((mask & IBV_REREG_MR_CHANGE_PD) != 0) mr->pd = pd;
  mr->handle = mr->lkey = answered.reply.number;
  mr->rkey = answered.reply.mr.rkey;
  return 0;
}

int ibv_dereg_mr(ibv_mr* mr) {
  if (mr == nullptr) return EINVAL;
  Context* context = to_context(mr->context);
  ControlRequest request{};
  request.op = ControlOp::deregister_mr;
  request.number = mr->lkey;
  const int error = context->link().ask(request);
  if (error != 0 && !context->dead()) return error;
  bring_region_home(*context, mr->lkey);
  auto* mine = static_cast<Mr*>(mr);
  if (mine->device_memory != nullptr) {
    mine->device_memory->regions.fetch_sub(1, std::memory_order_relaxed);
  }
  delete mine;
  return 0;
}

ibv_pd* ibv_import_pd(ibv_context*, std::uint32_t) { return null_with(EOPNOTSUPP); }
void ibv_unimport_pd(ibv_pd*) {}
ibv_mr* ibv_import_mr(ibv_pd*, std::uint32_t) { return null_with(EOPNOTSUPP); }
void ibv_unimport_mr(ibv_mr*) {}
ibv_dm* ibv_import_dm(ibv_context*, std::uint32_t) { return null_with(EOPNOTSUPP); }
void ibv_unimport_dm(ibv_dm*) {}

}  // extern "C"
