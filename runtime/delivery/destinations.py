"""Where reports go by name: a channel of `notices.channels`, or a bucket of `reports.stores`."""

from actions.notices import handing
from actions.notices.handing import File, Handed
from fallow.settings import Settings
from runtime.delivery import bucket, mail
from runtime.delivery.book import Delivery
from runtime.reporting import Report


def repeatable(settings: Settings, name: str) -> bool:
    """Say whether handing over twice leaves one: then what nobody lived to tell of is redone."""
    return name in settings.reports.stores


def hand(settings: Settings, one: Delivery, report: Report, lies: str) -> Handed:
    """Hand a report to its destination; `lies` says where a bucket has it, empty = nowhere.

    A channel whose service takes no files (Slack's and Teams' webhooks) gets the summary and that.
    """
    name, timeout = one.destination, settings.reports.timeout.total_seconds()
    if name in settings.reports.stores:
        return bucket.put(settings.reports.stores[name], settings.cluster, one, report)
    text = f"{report.summary}\n\n{lies}".strip() if lies else report.summary
    made = handing.opened(settings.notices.channels[name].url.get_secret_value())
    if made is None:
        return Handed(False, "its url is no Apprise URL")
    if _is_mail(made):
        return mail.hand(made, report, text, one.id, timeout)
    return handing.hand(
        made,
        report.title,
        text,
        timeout,
        file=File(report.name, report.media_type, report.body),
        headers={"Idempotency-Key": one.id},
    )


def _is_mail(made: object) -> bool:
    """Say whether it is plain SMTP; what signs or encrypts by PGP is left to Apprise."""
    from apprise.plugins.email import NotifyEmail  # noqa: PLC0415  (0.3 s and 170 services)

    return type(made) is NotifyEmail and made.pgp_mode == "no"
