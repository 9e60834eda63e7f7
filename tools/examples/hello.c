/* Says hello to another node: a message there and an answer back, by librdmacm and libibverbs.
 *
 *   cc -o hello hello.c -lrdmacm -libverbs
 *   flitnet exec n0 -- ./hello server 7471
 *   flitnet exec n1 -- ./hello client 127.1.0.1 7471
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 64 };

static void check(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

/* A listening endpoint without an address, a connecting one with it. */
static struct rdma_cm_id *endpoint(const char *address, const char *port) {
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP};
  struct rdma_addrinfo *found;
  struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 1,
                                          .max_recv_wr = 1,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1},
                                  .sq_sig_all = 1};
  struct rdma_cm_id *id;
  if (address == NULL) hints.ai_flags = RAI_PASSIVE;
  check(rdma_getaddrinfo(address, port, &hints, &found) == 0, "rdma_getaddrinfo");
  check(rdma_create_ep(&id, found, NULL, &attr) == 0, "rdma_create_ep");
  rdma_freeaddrinfo(found);
  return id;
}

static struct rdma_cm_id *wait_for_peer(const char *port) {
  struct rdma_cm_id *listener = endpoint(NULL, port);
  struct rdma_cm_id *id;
  check(rdma_listen(listener, 1) == 0, "rdma_listen");
  check(rdma_get_request(listener, &id) == 0, "rdma_get_request");
  return id;
}

static void say(struct rdma_cm_id *id, struct ibv_mr *mr, char *words, const char *text) {
  struct ibv_wc wc;
  snprintf(words, kBytes, "%s", text);
  check(rdma_post_send(id, NULL, words, kBytes, mr, 0) == 0, "rdma_post_send");
  check(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "send");
}

static void hear(struct rdma_cm_id *id, const char *words) {
  struct ibv_wc wc;
  check(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "receive");
  printf("heard: %.*s\n", kBytes, words);
}

int main(int argc, char **argv) {
  static char heard[kBytes], said[kBytes];
  const int serves = argc == 3 && strcmp(argv[1], "server") == 0;
  struct rdma_cm_id *id;
  struct ibv_mr *heard_mr, *said_mr;
  if (!serves && (argc != 4 || strcmp(argv[1], "client") != 0)) {
    fprintf(stderr, "usage: hello server PORT | hello client ADDRESS PORT\n");
    return 2;
  }
  id = serves ? wait_for_peer(argv[2]) : endpoint(argv[2], argv[3]);
  heard_mr = rdma_reg_msgs(id, heard, kBytes);
  said_mr = rdma_reg_msgs(id, said, kBytes);
  check(heard_mr != NULL && said_mr != NULL, "rdma_reg_msgs");
  /* Before the connection stands, so that the first message finds it. */
  check(rdma_post_recv(id, NULL, heard, kBytes, heard_mr) == 0, "rdma_post_recv");
  check((serves ? rdma_accept(id, NULL) : rdma_connect(id, NULL)) == 0, "connection");
  if (serves) {
    hear(id, heard);
    say(id, said_mr, said, "hello to you, from C");
  } else {
    say(id, said_mr, said, "hello from C");
    hear(id, heard);
  }
  rdma_disconnect(id);
  rdma_dereg_mr(heard_mr);
  rdma_dereg_mr(said_mr);
  rdma_destroy_ep(id);
  return 0;
}
