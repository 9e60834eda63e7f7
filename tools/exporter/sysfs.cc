#include "tools/exporter/sysfs.h"

#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "emu/base/guid.h"
#include "emu/base/link_speed.h"
#include "emu/config/node_address.h"
#include "emu/metrics/port_files.h"

namespace tools {
namespace {

using emu::Metric;

std::string guid_text(std::uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff,
                     guid >> 16 & 0xffff, guid & 0xffff);
}

// "0.4 Gb/sec (1X SDR)"; the words in brackets are what the kernel prints for the slowest links.
std::string rate_text(std::uint32_t link_mbps) {
  return fmt::format("{} Gb/sec (1X SDR)", link_mbps / 1000.0);
}

// ::ffff:a.b.c.d as the kernel writes it.
std::string ip_gid_text(const emu::Config& config, std::size_t node) {
  const std::uint32_t v4 = emu::node_address(config, node);
  return fmt::format("0000:0000:0000:0000:0000:ffff:{:04x}:{:04x}", v4 >> 16, v4 & 0xffff);
}

bool is_number(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string label_of(const emu::SeriesValue& series, std::string_view key) {
  for (const auto& [name, value] : series.labels) {
    if (name == key) return value;
  }
  return "";
}

// Stored values by node and metric name, summed over pages: fabricd and hcad each count a part.
using Totals = std::map<std::pair<std::string, std::string>, std::uint64_t>;

struct View {
  Totals totals;
  std::map<std::string, bool> up;  // by node
};

View view_of(const std::vector<emu::PageContent>& pages) {
  View view;
  const std::string_view up_name = emu::metric_info(Metric::port_up).name;
  for (const emu::PageContent& page : pages) {
    for (const emu::SeriesValue& series : page.series) {
      const std::string node = label_of(series, "node");
      if (node.empty()) continue;
      if (series.kind == emu::MetricKind::counter) view.totals[{node, series.name}] += series.raw;
      if (series.name == up_name) view.up[node] |= page.alive && series.value == 1;
    }
  }
  return view;
}

}  // namespace

SysfsTree::SysfsTree(std::string dir, const emu::Config& config, std::vector<std::size_t> nodes)
    : dir_(std::move(dir)), config_(config), nodes_(std::move(nodes)) {}

std::string SysfsTree::device_dir(std::size_t node) const {
  return fmt::format("{}/class/infiniband/{}-{}", dir_, config_.nodes[node].name,
                     config_.hca.device);
}

// Written beside and renamed, so a reader sees the old text or the new, never half of it.
emu::Result<void> SysfsTree::put(const std::string& path, std::string_view text) {
  std::string& there = written_[path];
  if (there == text) return {};
  // A counter grows in place: programs keep the file open and read it again (perftest -W).
  if (!there.empty() && text.size() >= there.size() && is_number(there) && is_number(text)) {
    std::fstream file(path, std::ios::in | std::ios::out);
    file << text << '\n';
    file.close();
    if (file) there = text;
    if (file) return {};
  }
  const std::string fresh = path + ".new";
  std::ofstream file(fresh, std::ios::trunc);
  file << text << '\n';
  file.close();
  if (!file || std::rename(fresh.c_str(), path.c_str()) != 0) {
    return emu::fail("cannot write {}: {}", path, std::strerror(errno));
  }
  there = text;
  return {};
}

emu::Result<void> SysfsTree::take_device(std::size_t node) {
  const std::string device = device_dir(node);
  std::error_code error;
  std::filesystem::create_directories(device, error);
  if (error) return emu::fail("cannot make {}: {}", device, error.message());
  std::unique_ptr<DIR, Close> folder(::opendir(device.c_str()));
  if (!folder) return emu::fail("cannot open {}: {}", device, std::strerror(errno));
  if (::flock(::dirfd(folder.get()), LOCK_EX | LOCK_NB) != 0) {
    return emu::fail("{} is kept by another exporter", device);
  }
  held_.push_back(std::move(folder));
  return {};
}

emu::Result<void> SysfsTree::make_device(std::size_t node) {
  const std::string device = device_dir(node);
  const std::string port = device + "/ports/1";
  const std::string own =
      fmt::format("{}/nodes/{}/class/infiniband", dir_, config_.nodes[node].name);
  std::error_code error;
  for (const std::string& folder :
       {port + "/counters", port + "/hw_counters", port + "/gids", port + "/gid_attrs/types",
        port + "/pkeys", device + "/device/net/lo", own}) {
    std::filesystem::create_directories(folder, error);
    if (error) return emu::fail("cannot make {}: {}", folder, error.message());
  }
  const std::string link = own + "/" + config_.hca.device;
  std::filesystem::remove(link, error);
  std::filesystem::create_directory_symlink(
      fmt::format("../../../../class/infiniband/{}-{}", config_.nodes[node].name,
                  config_.hca.device),
      link, error);
  if (error) return emu::fail("cannot make {}: {}", link, error.message());
  if (auto made = make_umad(node); !made) return made;
  const std::uint64_t guid = emu::guid_of(static_cast<emu::NodeId>(node));
  const bool roce = config_.hca.link_layer == emu::LinkLayer::roce_v2;
  constexpr std::uint32_t kRoceCapabilities = 1U << 16 | 1U << 26;  // CM, GIDs by IP: as verbs say
  const std::uint32_t capabilities =
      roce ? kRoceCapabilities : emu::port_capabilities(config_.network.link_bps(), node == 0);
  const std::pair<std::string, std::string> files[] = {
      {device + "/board_id", "FLITNET0001"},
      {device + "/fw_ver", "0.1.0"},
      {device + "/hca_type", "flitnet"},
      {device + "/hw_rev", fmt::format("{:x}", emu::kHardwareVersion)},
      {device + "/node_type", "1: CA"},
      {device + "/node_desc", fmt::format("{} {}", config_.nodes[node].name, config_.hca.device)},
      {device + "/node_guid", guid_text(guid)},
      {device + "/sys_image_guid", guid_text(guid)},
      {port + "/rate", rate_text(config_.network.link_mbps)},
      {port + "/lid",
       roce ? "0x0" : fmt::format("{:#x}", emu::lid_of(static_cast<emu::NodeId>(node)))},
      {port + "/lid_mask_count", "0"},
      {port + "/sm_lid", roce ? "0x0" : "0x1"},
      {port + "/sm_sl", "0"},
      {port + "/cap_mask", fmt::format("{:#010x}", capabilities)},
      {port + "/link_layer", roce ? "Ethernet" : "InfiniBand"},
      {port + "/pkeys/0", "0xffff"},
      {port + "/gids/0", guid_text(emu::kGidPrefix) + ":" + guid_text(guid)},
      {port + "/gid_attrs/types/0", roce ? "RoCE v2" : "IB/RoCE v1"},
  };
  for (const auto& [path, text] : files) {
    if (auto written = put(path, text); !written) return written;
  }
  return roce ? make_roce(port, node) : emu::Result<void>{};
}

// The device of libibumad; RoCE has no subnet whose agents could be asked.
emu::Result<void> SysfsTree::make_umad(std::size_t node) {
  if (config_.hca.link_layer == emu::LinkLayer::roce_v2) return {};
  const std::string mads =
      fmt::format("{}/nodes/{}/class/infiniband_mad", dir_, config_.nodes[node].name);
  std::error_code error;
  std::filesystem::create_directories(mads + "/umad0", error);
  if (error) return emu::fail("cannot make {}: {}", mads, error.message());
  const std::pair<std::string, std::string> files[] = {
      {mads + "/abi_version", "5"},  // IB_USER_MAD_ABI_VERSION
      {mads + "/umad0/ibdev", config_.hca.device},
      {mads + "/umad0/port", "1"},
  };
  for (const auto& [path, text] : files) {
    if (auto written = put(path, text); !written) return written;
  }
  return {};
}

// What only Ethernet ports have. UCX asks the kernel for a route by the interface of a GID, which
// is the one below device/net.
emu::Result<void> SysfsTree::make_roce(const std::string& port, std::size_t node) {
  std::error_code error;
  const std::string interfaces = port + "/gid_attrs/ndevs";
  std::filesystem::create_directories(interfaces, error);
  if (error) return emu::fail("cannot make {}: {}", interfaces, error.message());
  const std::pair<std::string, std::string> files[] = {
      {port + "/gids/1", ip_gid_text(config_, node)},
      {port + "/gid_attrs/types/1", "RoCE v2"},
      {interfaces + "/0", "lo"},
      {interfaces + "/1", "lo"},
  };
  for (const auto& [path, text] : files) {
    if (auto written = put(path, text); !written) return written;
  }
  return {};
}

emu::Result<SysfsTree> SysfsTree::make(const std::string& dir, const emu::Config& config,
                                       std::vector<std::size_t> nodes,
                                       const std::vector<emu::PageContent>& pages) {
  SysfsTree tree(dir, config, std::move(nodes));
  for (const std::size_t node : tree.nodes_) {
    if (auto taken = tree.take_device(node); !taken) return std::unexpected(taken.error());
  }
  for (const std::size_t node : tree.nodes_) {
    if (auto made = tree.make_device(node); !made) return std::unexpected(made.error());
  }
  if (auto updated = tree.update(pages); !updated) return std::unexpected(updated.error());
  return tree;
}

emu::Result<void> SysfsTree::update(const std::vector<emu::PageContent>& pages) {
  const View view = view_of(pages);
  for (const std::size_t node : nodes_) {
    const std::string& name = config_.nodes[node].name;
    const std::string port = device_dir(node) + "/ports/1";
    const auto up = view.up.find(name);
    const bool active = up != view.up.end() && up->second;
    const auto put_counter = [&](const emu::PortFile& counter) {
      const std::string path = fmt::format("{}/{}/{}", port, counter.folder, counter.name);
      std::uint64_t value = 0;
      if (counter.metric) {
        const std::string metric(emu::metric_info(*counter.metric).name);
        const auto found = view.totals.find({name, metric});
        // No page: the last value stays.
        std::error_code ignored;
        if (found == view.totals.end() && std::filesystem::exists(path, ignored))
          return emu::Result<void>();
        if (found != view.totals.end()) value = found->second;
      }
      return put(path, fmt::format("{}", value));
    };
    if (auto r = put(port + "/state", active ? "4: ACTIVE" : "1: DOWN"); !r) return r;
    if (auto r = put(port + "/phys_state", active ? "5: LinkUp" : "2: Polling"); !r) return r;
    for (const emu::PortFile& counter : emu::kPortFiles) {
      if (auto r = put_counter(counter); !r) return r;
    }
  }
  return {};
}

void SysfsTree::remove() {
  std::error_code ignored;
  for (const std::size_t node : nodes_) {
    std::filesystem::remove_all(device_dir(node), ignored);
    std::filesystem::remove_all(fmt::format("{}/nodes/{}", dir_, config_.nodes[node].name),
                                ignored);
  }
  // Folders that others put something into stay.
  for (const char* folder : {"/class/infiniband", "/class", "/nodes", ""}) {
    std::filesystem::remove(dir_ + folder, ignored);
  }
}

}  // namespace tools
