// A tree of files shaped as /sys/class/infiniband, one device per node, so that programs that read
// sysfs (node_exporter --path.sysfs, perftest, UCX) see the cluster's HCAs. In: configuration and
// counter pages. Out: files under a folder, rewritten when they change. Called once a second.
//
//   <dir>/class/infiniband/<node>-<device>/...                      all nodes of this host
//   <dir>/nodes/<node>/class/infiniband/<device> -> the same device   what one node would see
#pragma once

#include <dirent.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "emu/metrics/read.h"

namespace tools {

class SysfsTree {
 public:
  // Makes the folders and all files, by `pages`; also over what one before it has left. A device
  // that another living process keeps is an error: whoever of the two ended first would take it
  // away from the other. `nodes`: those of this host, by index; of the others nothing is known
  // here.
  static emu::Result<SysfsTree> make(const std::string& dir, const emu::Config& config,
                                     std::vector<std::size_t> nodes,
                                     const std::vector<emu::PageContent>& pages = {});
  SysfsTree(SysfsTree&&) = default;
  SysfsTree& operator=(SysfsTree&&) = default;

  // Brings counters and states up to date. A node without a living page is down; its counters
  // keep their last values.
  emu::Result<void> update(const std::vector<emu::PageContent>& pages);
  // Takes away what make() and update() made.
  void remove();

 private:
  struct Close {
    void operator()(DIR* folder) const { ::closedir(folder); }
  };
  SysfsTree(std::string dir, const emu::Config& config, std::vector<std::size_t> nodes);
  emu::Result<void> take_device(std::size_t node);
  emu::Result<void> make_device(std::size_t node);
  emu::Result<void> make_umad(std::size_t node);
  emu::Result<void> make_roce(const std::string& port, std::size_t node);
  emu::Result<void> put(const std::string& path, std::string_view text);
  std::string device_dir(std::size_t node) const;

  std::string dir_;
  emu::Config config_;
  std::vector<std::size_t> nodes_;
  std::vector<std::unique_ptr<DIR, Close>> held_;  // each device's folder, locked
  std::map<std::string, std::string> written_;     // path -> text that stands there
};

}  // namespace tools
