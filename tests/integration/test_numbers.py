"""Numbers and ids are found however they are written, and before others of the same kind."""

import pytest

from mnemolog import MemoryStore
from mnemolog.projections.sql.numbers import folded
from mnemolog.projections.sql.words import terms_of

QUESTIONS = """
The car costs $12,990. | The van costs $12,909. | What costs 12990?
The roof came to 1.299,00 euros. | The fence came to 1.399,00 euros. | What came to 1299 euros?
The stove was 1 499,00 kr. | The kettle was 499,00 kr. | what was 1499
The piano is 2'450 francs. | The organ is 2'540 francs. | Which one is 2450 francs?
The rent rose to 1850.00. | The heating rose to 1580.00. | What rose to 1,850?
The loan is 1.250.000 in all. | The grant is 1.520.000 in all. | the one of 1250000
Dinner came to 84,50 for two. | Lunch came to 48,50 for two. | What came to 84.50?
The fine was 1,299.50 in the end. | The toll was 1,299.00 in the end. | What was 1299,50?
We donated 10 000 last winter. | We lent 12 000 last winter. | Who got the 10,000?
Her salary is 64 500. | His salary is 65 400. | Whose salary is 64,500?
Invoice INV-2047 is paid. | Invoice INV-2048 is paid. | Is invoice inv 2047 paid?
The invoice is INV2147. | The invoice is INV2148. | Which invoice is INV-2147?
Order no. ord_7781 was returned. | Order no. ord_7718 was returned. | What about ORD-7781?
Ticket RMA/2023/118 is open. | Ticket RMA/2023/181 is open. | rma2023118
The part is AB-12-CD. | The part is AB-21-CD. | AB12CD
The plane is BA 117. | The plane is BA 171. | When does BA117 leave?
The train is ICE-594. | The train is ICE-549. | ice 594
The case number is 2024-0098. | The case number is 2024-0089. | What is case 20240098?
The plate reads B-AB 1234. | The plate reads B-AB 1243. | whose plate is B AB 1234
The badge is KX4417. | The badge is KX4471. | Whose badge is KX-4417?
The sensor is TMP-36. | The sensor is TMP-63. | the tmp36 sensor
Ana has the phone +351 912 345 678. | Bo has the phone +351 912 345 687. | Whose phone is 912345678?
Cleo at +49 170 1234567. | Call Dirk at +49 170 1234576. | Whose number is +491701234567?
Eve's number is 0171 7654321. | Finn's number is 0171 7654312. | Who has +49 171 7654321?
Gina is at (415) 555-0132. | Hal is at (415) 555-0123. | Who is at 415.555.0132?
Ida is at +1 212 555 0188. | Jon is at +1 212 555 0181. | Who is at (212) 555-0188?
The plumber: 06 12 34 56 78. | The painter: 06 12 34 56 87. | Who is +33 6 12 34 56 78?
The clinic is 020 7946 0958. | The library is 020 7946 0985. | Who is on 02079460958?
Karl moved to +49 (0)30 901820. | Lena moved to +49 (0)30 901802. | Who has 030 901820?
PT50 0002 0123 1234 5678 9015 4 is hers. | PT50 0002 0123 1234 5678 9051 4 is his. | PT50000201231234567890154
He pays from DE89370400440532013000. | He pays from DE89370400440532013003. | DE89 3704 0044 0532 0130 00?
The card ends 4111 1111 1111 1111. | The card ends 4111 1111 1111 1112. | 4111-1111-1111-1111
ISBN 978-3-16-148410-0. | ISBN 978-3-16-148410-9. | Which book is 9783161484100?
The meter shows 0045 2291. | The meter shows 0045 2219. | meter 00452291
The bug: 3fa2bed9c0ffee12ab34cd56ef7890123456789a. | The fix: 3fa2bee9c0ffee12ab34cd56. | What is 3fa2bed?
Commit 9c1d2e4f broke the login. | Commit 9c1d2f4f broke the logout. | What broke with 9c1d2e4f77aa?
550e8400-e29b-41d4-a716-446655440000 ran. | 550e8401-e29b-41d4-a716-446655440000 ran. | 550e8400e29b41d4a716446655440000
The printer is 00:1A:2B:3C:4D:5E. | The scanner is 00:1A:2B:3C:4D:5F. | Which one is 00-1a-2b-3c-4d-5e?
We upgraded to v2.10. | We upgraded to v2.1. | When did we go to 2.10?
The crash is in v2.1 only. | The crash is in v2.11 only. | Is there a crash in 2.1?
Release 3.12.4 is out. | Release 3.12.1 is out. | v3.12.4
The server is 10.0.12.5. | The server is 10.0.12.15. | Which server is 10.0.12.5?
The choir meets at 6:30 pm. | The band meets at 6:45 pm. | Who meets at 18:30?
The ferry leaves at 7 am. | The ferry returns at 8 am. | What happens at 07:00?
Doors open at 19:00 sharp. | Doors close at 21:00 sharp. | What is at 7pm?
The pill is due at 9.15 p.m. | The drops are due at 9.45 p.m. | What is due at 21:15?
The tariff is 5 % of it. | The tariff was 15 % of it. | What is 5%?
They ask 2,5 % interest. | They ask 2,9 % interest. | Who asks 2.5 percent?
A raise of 12 percent is planned. | A cut of 21 percent is planned. | What about 12%?
The laptop has 512GB. | The laptop has 256GB. | Which laptop has 512 GB?
Add 250 g of flour. | Add 350 g of sugar. | Of what 250g?
The trail is 42 km long. | The road is 24 km long. | What is 42km long?
We got married on 2015-06-20. | We got engaged on 2015-06-02. | What was on June 20, 2015?
The lease ends 05.03.2026. | The visa ends 03.05.2026. | What ends on 5 March 2026?
The warranty runs to 25/12/2027. | The policy runs to 15/12/2027. | until 2027-12-25
Mia was born on the 3rd of May 2019. | Noa was born on the 5th of March 2019. | Who was born on 2019-05-03?
The fair is on Oct 9, 2026. | The race is on Sep 10, 2026. | What is on 9.10.2026?
The flat is number 1204 in tower 3. | The flat is number 1402 in tower 3. | Who has flat 1,204?
The parcel is RR 123 456 785 DE. | The parcel is RR 123 456 758 DE. | Where is parcel 123456785?
The licence key begins WX-9931-Q. | The licence key begins WX-9913-Q. | Which key begins wx9931q?
"""


def test_a_number_is_found_however_it_is_written(tmp_path):
    """By its words alone, and before another number of the same kind, among 120 turns with numbers."""
    rows = [line.split(" | ") for line in QUESTIONS.strip().splitlines()]
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        session = store.session("numbers")
        said = [text for right, wrong, _ in rows for text in (wrong, right)]
        session.record_many([{"role": "user", "text": text} for text in said])
        first = [(query, store.recall(query, k=1)[0].text, right) for right, _, query in rows]
    assert len(rows) == 60
    assert [item for item in first if item[1] != item[2]] == []


@pytest.mark.parametrize(
    "text", ["1.299", "3/5/2024", "6:30", "5th 90s 24/7", "31.02.2024", "10-15 minutes", "no digit"]
)
def test_what_has_several_readings_or_none_stays_as_it_is(text):
    """`1.299` may be a decimal number, and `6:30` a time of the evening."""
    assert {form for _, form in folded(text)} <= {"1q299"}


def test_the_numbers_of_a_pasted_page_leave_room_for_its_words():
    """Both are searched."""
    page = " ".join(f"1,{n}.00 ferry{chr(97 + n % 26)}" for n in range(100, 300))
    assert {"1100", "ferryz"} <= set(terms_of(page))
