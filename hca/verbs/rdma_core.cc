#include "hca/verbs/rdma_core.h"

#include <link.h>

#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace hca {

namespace {

int look_at(dl_phdr_info* info, std::size_t, void* found) {
  if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "libibverbs.so") == nullptr) {
    return 0;
  }
  char file[PATH_MAX];
  if (::realpath(info->dlpi_name, file) == nullptr) return 0;  // it was replaced since
  const unsigned release = rdma_core_release(file);
  if (release == 0 || release == kRdmaCoreTried) return 0;
  *static_cast<std::string*>(found) = file;
  return 1;
}

}  // namespace

// libibverbs.so.<major>.<minor>.<release>.<patch>
unsigned rdma_core_release(std::string_view file) {
  constexpr std::string_view kName = "libibverbs.so.";
  const std::size_t at = file.rfind(kName);
  if (at == std::string_view::npos) return 0;
  std::string_view left = file.substr(at + kName.size());
  for (int skipped = 0; skipped < 2; ++skipped) {
    const std::size_t dot = left.find('.');
    if (dot == std::string_view::npos) return 0;
    left.remove_prefix(dot + 1);
  }
  unsigned release = 0;
  const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), release);
  return error == std::errc{} ? release : 0;
}

std::string untried_rdma_core() {
  const char* chosen = std::getenv(kRdmaCoreVariable);
  if (chosen != nullptr && std::strcmp(chosen, "any") == 0) return {};
  std::string found;
  ::dl_iterate_phdr(look_at, &found);
  return found;
}

}  // namespace hca
