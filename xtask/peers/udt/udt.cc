// UDT 4.11 (Debian's libudt) as a peer of `cargo xtask bench transport`: one stream, as fast as it goes.
// `receive PORT` takes one connection and writes a line `SECONDS BYTES` every half second, counted from
// its beginning; `send HOST PORT SECONDS` fills it.
// g++ -O2 -o udt-peer udt.cc -ludt -lpthread
#include <arpa/inet.h>
#include <udt/udt.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using Clock = std::chrono::steady_clock;

// As large as every other peer's, in bytes.
const int window = 256000000;
const int block = 1 << 20;

[[noreturn]] static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, UDT::getlasterror().getErrorMessage());
  exit(1);
}

static double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

static UDTSOCKET open_socket() {
  UDTSOCKET socket = UDT::socket(AF_INET, SOCK_STREAM, 0);
  int packets = window / 1456;
  UDT::setsockopt(socket, 0, UDT_FC, &packets, sizeof packets);
  for (auto option : {UDT_SNDBUF, UDT_RCVBUF, UDP_SNDBUF, UDP_RCVBUF})
    UDT::setsockopt(socket, 0, option, &window, sizeof window);
  return socket;
}

static sockaddr_in address_of(const char *host, const char *port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(atoi(port));
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

static int receive(const char *port) {
  UDTSOCKET listener = open_socket();
  sockaddr_in address = address_of("0.0.0.0", port);
  if (UDT::bind(listener, (sockaddr *)&address, sizeof address) == UDT::ERROR) fail("bind");
  if (UDT::listen(listener, 1) == UDT::ERROR) fail("listen");
  int length = sizeof address;
  UDTSOCKET socket = UDT::accept(listener, (sockaddr *)&address, &length);
  if (socket == UDT::INVALID_SOCK) fail("accept");
  auto start = Clock::now();
  std::vector<char> buffer(block);
  long long bytes = 0;
  double next = 0;
  for (int got; (got = UDT::recv(socket, buffer.data(), block, 0)) != UDT::ERROR;) {
    bytes += got;
    if (since(start) < next) continue;
    printf("%.3f %lld\n", since(start), bytes);
    fflush(stdout);
    next = since(start) + 0.5;
  }
  return 0;
}

static int send(const char *host, const char *port, double seconds) {
  UDTSOCKET socket = open_socket();
  sockaddr_in address = address_of(host, port);
  if (UDT::connect(socket, (sockaddr *)&address, sizeof address) == UDT::ERROR) fail("connect");
  auto start = Clock::now();
  std::vector<char> buffer(block);
  while (since(start) < seconds)
    if (UDT::send(socket, buffer.data(), block, 0) == UDT::ERROR) fail("send");
  // Not closed: that would wait for all that is queued.
  _Exit(0);
}

int main(int argc, char **argv) {
  UDT::startup();
  if (argc == 3 && !strcmp(argv[1], "receive")) return receive(argv[2]);
  if (argc == 5 && !strcmp(argv[1], "send")) return send(argv[2], argv[3], atof(argv[4]));
  fprintf(stderr, "receive PORT | send HOST PORT SECONDS\n");
  return 2;
}
