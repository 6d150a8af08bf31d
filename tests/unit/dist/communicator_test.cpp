#include "dist/communicator.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <optional>

#include "ranks.h"

using namespace trainer;
using test::run_ranks;
using Errors = std::vector<std::string>;

TEST_CASE("three ranks: sum, broadcast, ragged gather and barrier") {
  // Catch's assertions are not for several threads: each rank leaves its results here.
  std::vector<at::Tensor> sums(3), copies(3), rows(3), none(3);
  const auto errors = run_ranks(3, [&](dist::Communicator& c) {
    const auto r = static_cast<size_t>(c.rank());
    sums[r] = at::full({2}, static_cast<double>(c.rank() + 1));
    c.all_reduce_sum(sums[r]);
    copies[r] = at::full({3}, c.rank(), at::kLong);
    const at::Tensor parameter = at::full({2}, static_cast<double>(c.rank())).requires_grad_();
    c.broadcast({copies[r], parameter}, 2);
    rows[r] = c.all_gather_rows(at::full({c.rank(), 2}, c.rank(), at::kLong));  // 0, 1 and 2 rows
    none[r] = c.all_gather_rows(at::empty({0, 4}));
    c.barrier();
  });
  CHECK(errors == Errors(3));
  for (size_t r = 0; r < 3; ++r) {
    CHECK(sums[r].equal(at::full({2}, 6.0)));
    CHECK(copies[r].equal(at::full({3}, 2, at::kLong)));
    CHECK(rows[r].equal(at::tensor({1, 1, 2, 2, 2, 2}, at::kLong).reshape({3, 2})));
    CHECK(none[r].sizes() == at::IntArrayRef({0, 4}));
  }
}

TEST_CASE("of several proposals all ranks see the first") {
  std::vector<std::optional<int64_t>> before(3), own(3), after(3);
  const auto errors = run_ranks(3, [&](dist::Communicator& c) {
    const auto r = static_cast<size_t>(c.rank());
    before[r] = c.first_proposal("step", std::nullopt);
    c.barrier();
    if (r > 0) own[r] = c.first_proposal("step", 100 + c.rank());
    c.barrier();
    after[r] = c.first_proposal("step", std::nullopt);
  });
  CHECK(errors == Errors(3));
  CHECK((before == std::vector<std::optional<int64_t>>(3)));
  CHECK((own[1] == 101 || own[1] == 102));
  CHECK((own[2] == own[1]));
  CHECK((after == std::vector<std::optional<int64_t>>(3, own[1])));
}

TEST_CASE("a job of one rank needs no store") {
  CHECK(dist::join(test::job_of(0, 1, 1), false)->size() == 1);
}

TEST_CASE("rows go to every rank, in any number, beside those of a channel that is used in another order") {
  // Rank r sends to rank d the row [10 r + d, 0] d + r times, less one: 0 rows between some.
  std::vector<at::Tensor> received(3), other(3);
  const auto errors = run_ranks(3, [&](dist::Communicator& c) {
    const auto r = static_cast<size_t>(c.rank());
    const auto channel = c.channel("rows");
    std::vector<int64_t> sent, from;
    std::vector<at::Tensor> rows;
    for (int64_t d = 0; d < 3; ++d) {
      sent.push_back(std::max<int64_t>(0, d + c.rank() - 1));
      from.push_back(sent.back());
      rows.push_back(at::tensor({10 * c.rank() + d, int64_t{0}}, at::kLong).expand({sent.back(), 2}));
    }
    received[r] = at::empty({from[0] + from[1] + from[2], 2}, at::kLong);
    other[r] = at::empty({3}, at::kInt);
    const auto on_channel = [&] {
      return channel->all_to_all_rows(other[r], at::full({3}, c.rank(), at::kInt), {1, 1, 1}, {1, 1, 1},
                                      "numbers");
    };
    // The channel's may begin before or after those here, and end in any order.
    std::unique_ptr<dist::Pending> first;
    if (c.rank() == 0) first = on_channel();
    const auto pending = c.all_to_all_rows(received[r], at::cat(rows), from, sent, "rows");
    if (c.rank() != 0) first = on_channel();
    if (c.rank() == 2) pending->wait();
    first->wait();
    if (c.rank() != 2) pending->wait();
    const auto nothing = c.all_to_all_rows(at::empty({0}), at::empty({0}), {0, 0, 0}, {0, 0, 0}, "nothing");
    nothing->wait();
  });
  CHECK(errors == Errors(3));
  CHECK(received[0].select(1, 0).equal(at::tensor({20}, at::kLong)));
  CHECK(received[1].select(1, 0).equal(at::tensor({11, 21, 21}, at::kLong)));
  CHECK(received[2].select(1, 0).equal(at::tensor({2, 12, 12, 22, 22, 22}, at::kLong)));
  for (const at::Tensor& o : other) CHECK(o.equal(at::tensor({0, 1, 2}, at::kInt)));
}
