"""Resolve destinations of reports: a channel of `notices.channels` or a bucket."""

from actions.notices import apprise_delivery
from actions.notices.apprise_delivery import AttachedFile, DeliveryAttempt
from fallow.settings import Settings
from runtime.operations.answers.reports import Report
from runtime.service.delivery import bucket, mail
from runtime.service.delivery.outbox import Delivery


def is_repeatable(settings: Settings, name: str) -> bool:
    """Return whether two deliveries leave one object: then an unknown result may be repeated."""
    return name in settings.reports.stores


def deliver_report(
    settings: Settings, delivery: Delivery, report: Report, location: str
) -> DeliveryAttempt:
    """Deliver a report to its destination; `location` is its place in a bucket, empty = none.

    A channel whose service takes no files (Slack's and Teams' webhooks) gets the summary and the
    location.
    """
    name, timeout = delivery.destination, settings.reports.timeout.total_seconds()
    if name in settings.reports.stores:
        store = settings.reports.stores[name]
        return bucket.put(store, settings.cluster, delivery, report, timeout)
    text = f"{report.summary}\n\n{location}".strip() if location else report.summary
    plugin = apprise_delivery.open_service(settings.notices.channels[name].url.get_secret_value())
    if plugin is None:
        return DeliveryAttempt(False, "its url is no Apprise URL")
    if _is_mail(plugin):
        return mail.send_mail(plugin, report, text, delivery.id, timeout)
    return apprise_delivery.deliver_text(
        plugin,
        report.title,
        text,
        timeout,
        file=AttachedFile(report.name, report.media_type, report.body),
        headers={"Idempotency-Key": delivery.id},
    )


def _is_mail(plugin: object) -> bool:
    """Return whether it is plain SMTP; signing and PGP encryption are left to Apprise."""
    from apprise.plugins.email import NotifyEmail  # noqa: PLC0415  (0.3 s and 170 services)

    return type(plugin) is NotifyEmail and plugin.pgp_mode == "no"
