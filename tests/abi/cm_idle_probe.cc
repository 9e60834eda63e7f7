// Connections by rdma_cm on which nobody ever sends, so that only rdma_cm knows how their peers
// are. In: serve or connect, the server's address and port. Out: a line for each event of the
// server, "established" from the client; both stay until they are killed.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

void must(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  ::_exit(1);
}

rdma_conn_param parameters() {
  rdma_conn_param param{};
  param.qp_num = 0x100;  // nobody's: no packet is sent
  return param;
}

void serve(rdma_event_channel* channel, rdma_cm_id* id, sockaddr* own) {
  must(rdma_bind_addr(id, own) == 0, "rdma_bind_addr");
  must(rdma_listen(id, 8) == 0, "rdma_listen");
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel, &event) == 0) {
    std::printf("%s\n", rdma_event_str(event->event));
    std::fflush(stdout);
    rdma_conn_param param = parameters();
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      must(rdma_accept(event->id, &param) == 0, "rdma_accept");
    }
    must(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
  }
}

void expect(rdma_event_channel* channel, rdma_cm_event_type wanted) {
  rdma_cm_event* event = nullptr;
  must(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  if (event->event != wanted) {
    std::printf("%s\n", rdma_event_str(event->event));
    std::exit(1);
  }
  must(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
}

void connect_to(rdma_event_channel* channel, rdma_cm_id* id, sockaddr* to) {
  must(rdma_resolve_addr(id, nullptr, to, 1000) == 0, "rdma_resolve_addr");
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  must(rdma_resolve_route(id, 1000) == 0, "rdma_resolve_route");
  expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  rdma_conn_param param = parameters();
  must(rdma_connect(id, &param) == 0, "rdma_connect");
  expect(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
  must(rdma_establish(id) == 0, "rdma_establish");
  std::printf("established\n");
  std::fflush(stdout);
  ::pause();
}

}  // namespace

int main(int, char** argv) {
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[3])));
  must(::inet_pton(AF_INET, argv[2], &server.sin_addr) == 1, "the address");
  rdma_event_channel* channel = rdma_create_event_channel();
  must(channel != nullptr, "rdma_create_event_channel");
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  const bool serves = std::string_view(argv[1]) == "serve";
  (serves ? serve : connect_to)(channel, id, reinterpret_cast<sockaddr*>(&server));
  return 0;
}
