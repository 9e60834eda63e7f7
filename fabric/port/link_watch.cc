#include "fabric/port/link_watch.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <rte_ethdev.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace fabric {
namespace {

emu::UniqueFd listen_to_links() {
  emu::UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return {};
  return fd;
}

// Asks for the state of one link: at the start, and when events were lost.
void ask_for_link(int fd, unsigned interface) {
  struct {
    nlmsghdr header;
    ifinfomsg body;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.ifi_family = AF_UNSPEC;
  request.body.ifi_index = static_cast<int>(interface);
  (void)::send(fd, &request, sizeof request, 0);
}

// Of the interface that a message of RTM_NEWLINK is about; empty: it says none.
std::string_view name_in(nlmsghdr* message) {
  auto left = static_cast<unsigned>(IFLA_PAYLOAD(message));
  for (rtattr* each = IFLA_RTA(NLMSG_DATA(message)); RTA_OK(each, left);
       each = RTA_NEXT(each, left)) {
    if (each->rta_type != IFLA_IFNAME) continue;
    const auto* name = static_cast<const char*>(RTA_DATA(each));
    return {name, ::strnlen(name, RTA_PAYLOAD(each))};
  }
  return {};
}

}  // namespace

LinkWatch::LinkWatch(std::uint16_t port, unsigned interface) : port_(port), interface_(interface) {
  if (interface_ == 0) return;
  std::array<char, IF_NAMESIZE> name{};
  if (::if_indextoname(interface_, name.data()) != nullptr) name_ = name.data();
  netlink_ = listen_to_links();
  if (netlink_) ask_for_link(netlink_.get(), interface_);
}

void LinkWatch::hear(std::uint32_t flags) {
  up_ = (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0;
  was_down_ = was_down_ || !up_;
}

void LinkWatch::look() {
  was_down_ = !up_;
  if (netlink_) return read_events();
  if (interface_ != 0) return;  // no netlink: then it is taken for up
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(port_, &link) != 0) return;
  hear(link.link_status == RTE_ETH_LINK_UP ? IFF_UP | IFF_RUNNING : 0);
}

void LinkWatch::read_events() {
  alignas(nlmsghdr) std::array<char, 8192> bytes;
  while (true) {
    const ssize_t n = ::recv(netlink_.get(), bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == ENOBUFS) {
      was_down_ = true;  // it may have been
      ask_for_link(netlink_.get(), interface_);
      continue;
    }
    if (n <= 0) return;
    auto left = static_cast<unsigned>(n);
    for (auto* message = reinterpret_cast<nlmsghdr*>(bytes.data()); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_type != RTM_NEWLINK && message->nlmsg_type != RTM_DELLINK) continue;
      if (message->nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) continue;
      ifinfomsg info{};
      std::memcpy(&info, NLMSG_DATA(message), sizeof info);
      const bool there = message->nlmsg_type == RTM_NEWLINK;
      if (there && !name_.empty() && name_in(message) == name_)
        interface_ = static_cast<unsigned>(info.ifi_index);
      if (info.ifi_index == static_cast<int>(interface_)) hear(there ? info.ifi_flags : 0);
    }
  }
}

}  // namespace fabric
